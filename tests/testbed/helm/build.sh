#!/bin/sh
# Builds helm into ${CARGO_TARGET_DIR:-target}/testbed/helm and prints that path. Skips the build if neither go.mod nor
# the Go version changed. The first build takes minutes.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$here/../../..
what="helm"
. "$here/../go-build.sh"
go_build helm helm.sh/helm/v4/cmd/helm
