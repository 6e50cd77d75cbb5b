#!/bin/sh
# Builds nats-server into ${CARGO_TARGET_DIR:-target}/testbed/nats-server and prints that path. Does nothing when
# neither go.mod nor the Go version changed. The first build takes half a minute.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
target=${CARGO_TARGET_DIR:-$here/../../../target}
mkdir -p "$target/testbed"
out=$(cd "$target/testbed" && pwd)

if ! command -v go >/dev/null 2>&1; then
    echo "build.sh: go is not installed; nats-server needs Go 1.26 or newer (https://go.dev/dl)" >&2
    exit 1
fi

cd "$here"
stamp=$({ go version; cat go.mod go.sum build.sh; } | sha256sum | cut -d' ' -f1)
if [ ! -x "$out/nats-server" ] || [ "$(cat "$out/nats-stamp" 2>/dev/null)" != "$stamp" ]; then
    echo "build.sh: building nats-server" >&2
    rm -f "$out/nats-stamp"
    # Built beside and moved, so that a server that runs from the old binary is not disturbed.
    nice go build -trimpath -buildvcs=false -o "$out/nats-server.new.$$" github.com/nats-io/nats-server/v2
    mv "$out/nats-server.new.$$" "$out/nats-server"
    echo "$stamp" >"$out/nats-stamp"
fi
echo "$out/nats-server"
