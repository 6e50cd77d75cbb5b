#!/bin/sh
# Builds the checker of Containerfiles into ${CARGO_TARGET_DIR:-target}/testbed/containerfile and prints that path. Does
# nothing when neither the source nor the Go version changed. The first build takes half a minute.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$here/../../..
what="the checker of Containerfiles"
. "$here/../go-build.sh"
go_build containerfile . "$here"/*.go
