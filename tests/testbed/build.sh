#!/bin/sh
# Builds the test bed (etcd + kube-apiserver in one binary) into ${CARGO_TARGET_DIR:-target}/testbed/testbed and prints
# that path. Does nothing when neither the sources nor the Go version changed. The first build takes minutes.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
target=${CARGO_TARGET_DIR:-$here/../../target}
mkdir -p "$target/testbed"
out=$(cd "$target/testbed" && pwd)

if ! command -v go >/dev/null 2>&1; then
    echo "build.sh: go is not installed; the test bed needs Go 1.26 or newer (https://go.dev/dl)" >&2
    exit 1
fi

cd "$here"
stamp=$({ go version; cat go.mod go.sum ./*.go build.sh; } | sha256sum | cut -d' ' -f1)
if [ ! -x "$out/testbed" ] || [ "$(cat "$out/stamp" 2>/dev/null)" != "$stamp" ]; then
    echo "build.sh: building the test bed (the first time takes minutes)" >&2
    rm -f "$out/stamp"
    # Built beside and moved, so that a cluster that runs from the old binary is not disturbed.
    nice go build -trimpath -buildvcs=false -o "$out/testbed.new.$$" .
    mv "$out/testbed.new.$$" "$out/testbed"
    echo "$stamp" >"$out/stamp"
fi
echo "$out/testbed"
