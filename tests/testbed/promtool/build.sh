#!/bin/sh
# Builds promtool into ${CARGO_TARGET_DIR:-target}/testbed/promtool and prints that path. Does nothing when neither go.mod
# nor the Go version changed. The first build takes minutes.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$here/../../..
what="promtool"
. "$here/../go-build.sh"
# Without the clients of every cloud in which Prometheus can look for what to scrape.
export GOFLAGS="${GOFLAGS:-} -tags=remove_all_sd"
go_build promtool github.com/prometheus/prometheus/cmd/promtool
