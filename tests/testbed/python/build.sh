#!/bin/sh
# Installs the Kubernetes client of Python into ${CARGO_TARGET_DIR:-target}/testbed/python and prints the path of its
# interpreter. Skips the installation if the requirements did not change. Prints an empty line if PyPI is not reached.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
target=${CARGO_TARGET_DIR:-$here/../../../target}
mkdir -p "$target/testbed"
venv=$(cd "$target/testbed" && pwd)/python

stamp=$({ python3 --version; cat "$here/requirements.txt"; } | sha256sum | cut -d' ' -f1)
if [ "$(cat "$venv/stamp" 2>/dev/null)" != "$stamp" ]; then
    echo "build.sh: installing the Kubernetes client of Python" >&2
    rm -rf "$venv"
    python3 -m venv "$venv"
    if ! "$venv/bin/pip" install --quiet --disable-pip-version-check --requirement "$here/requirements.txt" >&2; then
        echo "build.sh: cannot install $(tr '\n' ' ' <"$here/requirements.txt"): is PyPI reached?" >&2
        echo
        exit
    fi
    echo "$stamp" >"$venv/stamp"
fi
echo "$venv/bin/python"
