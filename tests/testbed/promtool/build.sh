#!/bin/sh
# Builds promtool into ${CARGO_TARGET_DIR:-target}/testbed/promtool and prints that path. Skips the build if neither
# go.mod nor the Go version changed. The first build takes minutes.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$here/../../..
what="promtool"
. "$here/../go-build.sh"
# Without Prometheus' service discovery, which depends on the client of every cloud.
export GOFLAGS="${GOFLAGS:-} -tags=remove_all_sd"
go_build promtool github.com/prometheus/prometheus/cmd/promtool
