#!/bin/sh
# Builds the test bed (etcd and kube-apiserver in one binary) into ${CARGO_TARGET_DIR:-target}/testbed/testbed and prints
# that path. Skips the build if neither the sources nor the Go version changed. The first build takes minutes.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$here/../..
what="the test bed"
. "$here/go-build.sh"
go_build testbed . "$here"/*.go
