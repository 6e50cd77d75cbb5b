#!/bin/sh
# Builds kustomize into ${CARGO_TARGET_DIR:-target}/testbed/kustomize and prints that path. Skips the build if neither
# go.mod nor the Go version changed. The first build takes half a minute.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$here/../../..
what="kustomize"
. "$here/../go-build.sh"
go_build kustomize sigs.k8s.io/kustomize/kustomize/v5
