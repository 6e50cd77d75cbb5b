#!/bin/sh
# Builds a program of this module into ${CARGO_TARGET_DIR:-target}/testbed and prints its path. Skips the build if neither
# the sources nor the Go version changed. The first build takes minutes.
#
# usage: build.sh [testbed|reader|kubectl|protobuf|protobuf-older]
#   testbed  etcd and kube-apiserver in one binary (the default)
#   reader   client-go's readers
#   protobuf the schema of built-in types, and objects in protobuf and JSON
#   protobuf-older  the same of an older Kubernetes version, that of protobuf/older.mod
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
protobuf-older)
    what="the schema writer of an older version"
    export GOFLAGS="-modfile=$here/protobuf/older.mod -tags=older"
    go_build protobuf-older ./protobuf "$here"/protobuf/*
    ;;
kubectl) go_build kubectl k8s.io/kubernetes/cmd/kubectl ;;
*) echo "build.sh: unknown program '$program'; known: testbed, reader, kubectl, protobuf, protobuf-older" >&2 && exit 1 ;;
esac
