#!/bin/sh
# Builds the test bed (etcd + kube-apiserver in one binary) into ${CARGO_TARGET_DIR:-target}/testbed/testbed and prints
# that path. Does nothing when neither the sources nor the Go version changed. The first build takes minutes.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$here/../..
what="the test bed"
. "$here/go-build.sh"
go_build testbed . "$here"/*.go
