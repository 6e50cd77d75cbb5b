#!/bin/sh
# Builds nats-server into ${CARGO_TARGET_DIR:-target}/testbed/nats-server and prints that path. Skips the build if
# neither go.mod nor the Go version changed. The first build takes half a minute.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$here/../../..
what="nats-server"
. "$here/../go-build.sh"
go_build nats-server github.com/nats-io/nats-server/v2
