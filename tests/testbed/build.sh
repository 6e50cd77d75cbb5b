#!/bin/sh
# Builds a program of this module into ${CARGO_TARGET_DIR:-target}/testbed and prints its path. Skips the build if neither
# the sources nor the Go version changed. The first build takes minutes.
#
# usage: build.sh [testbed|reader|kubectl|protobuf]
#   testbed  etcd and kube-apiserver in one binary (the default)
#   reader   client-go's readers
#   protobuf the schema of built-in types, and objects in protobuf and JSON
#   kubectl  kubectl of the same Kubernetes version
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$here/../..
program=${1:-testbed}
what=$program
. "$here/go-build.sh"
case $program in
testbed) what="the test bed" && go_build testbed . "$here"/*.go ;;
reader) go_build reader ./reader "$here"/reader/*.go ;;
protobuf) what="the schema writer" && go_build protobuf ./protobuf "$here"/protobuf/*.go ;;
kubectl) go_build kubectl k8s.io/kubernetes/cmd/kubectl ;;
*) echo "build.sh: unknown program '$program'; known: testbed, reader, kubectl, protobuf" >&2 && exit 1 ;;
esac
