#!/bin/sh
# Builds evaluate (PromQL over scraped texts) into ${CARGO_TARGET_DIR:-target}/testbed/evaluate and prints that path. Skips
# the build if the source, go.mod and the Go version are unchanged. The first build takes minutes.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$here/../../..
what="the query evaluator"
. "$here/../go-build.sh"
export GOFLAGS="${GOFLAGS:-} -tags=remove_all_sd"
go_build evaluate ./evaluate "$here"/evaluate/*.go "$here/evaluate.sh"
