#!/bin/sh
# Builds evaluate (PromQL over scraped texts, by Prometheus' own engine) into ${CARGO_TARGET_DIR:-target}/testbed/evaluate and
# prints that path. Does nothing when neither it, nor go.mod, nor the Go version changed. The first build takes minutes.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$here/../../..
what="the evaluator of queries"
. "$here/../go-build.sh"
export GOFLAGS="${GOFLAGS:-} -tags=remove_all_sd"
go_build evaluate ./evaluate "$here"/evaluate/*.go "$here/evaluate.sh"
