#!/bin/sh
# Builds the Containerfile linter into ${CARGO_TARGET_DIR:-target}/testbed/containerfile and prints that path. Skips the
# build if neither the source nor the Go version changed. The first build takes half a minute.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$here/../../..
what="the Containerfile linter"
. "$here/../go-build.sh"
go_build containerfile . "$here"/*.go
