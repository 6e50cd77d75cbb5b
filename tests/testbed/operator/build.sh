#!/bin/sh
# Downloads the Prometheus operator's module and prints the folder with its CustomResourceDefinitions.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$here/../../..
what="fetching the operator's definitions"
. "$here/../go-build.sh"
cd "$here"
go mod download github.com/prometheus-operator/prometheus-operator
echo "$(go list -m -f '{{.Dir}}' github.com/prometheus-operator/prometheus-operator)/example/prometheus-operator-crd"
