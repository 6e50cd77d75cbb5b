# Functions for the build scripts in tests/testbed, which source this file.
#
# They must set `here` (their folder, with go.mod), `root` (the repository) and `what` (the name of the tool in messages).
# Sets `out`, the directory for binaries.

target=${CARGO_TARGET_DIR:-$root/target}
mkdir -p "$target/testbed"
out=$(cd "$target/testbed" && pwd)

if ! command -v go >/dev/null 2>&1; then
    echo "build.sh: go is not installed; $what needs Go 1.26 or newer (https://go.dev/dl)" >&2
    exit 1
fi

# go_build NAME PACKAGE SOURCE…: builds a package into $out/NAME and prints the path. Skips the build if go.mod, go.sum,
# the sources, the scripts and the Go version are unchanged.
go_build() {
    name=$1 package=$2
    shift 2
    cd "$here"
    stamp=$({ go version; cat go.mod go.sum "$@" build.sh "$root/tests/testbed/go-build.sh"; } | sha256sum | cut -d' ' -f1)
    if [ ! -x "$out/$name" ] || [ "$(cat "$out/$name.stamp" 2>/dev/null)" != "$stamp" ]; then
        echo "build.sh: building $what (the first time takes minutes)" >&2
        rm -f "$out/$name.stamp"
        # Built under another name and moved, so that running processes keep the old binary.
        nice go build -trimpath -buildvcs=false -o "$out/$name.new.$$" "$package"
        mv "$out/$name.new.$$" "$out/$name"
        echo "$stamp" >"$out/$name.stamp"
    fi
    echo "$out/$name"
}
