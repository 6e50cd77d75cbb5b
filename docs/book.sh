#!/usr/bin/env bash
# Builds the book: docs/book.sh [DIRECTORY], else target/book. Needs mdbook (cargo install mdbook).
#
# The documents link to each other, to configurations and to sources by their places in the repository. So the book has
# the repository's shape: what is linked to is copied beside the pages, and SUMMARY.md goes to the top.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
out=${1:-${CARGO_TARGET_DIR:-$root/target}/book}

if ! command -v mdbook >/dev/null 2>&1; then
    echo "book.sh: mdbook is not installed; cargo install mdbook --locked" >&2
    exit 1
fi

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
cd "$root"
cp -R ./*.md LICENSE config deploy docs examples src tests "$stage"
rm -f "$stage"/docs/SUMMARY.md "$stage"/docs/book.sh "$stage"/docs/book.toml
cp docs/book.toml "$stage"
# From docs/ to the top: pages of docs are in a folder, their neighbours are not.
sed -E 's#\]\(\.\./#](#; t; s#\]\(([^)]+\.md)\)#](docs/\1)#' docs/SUMMARY.md >"$stage/SUMMARY.md"

mkdir -p "$out"
mdbook build "$stage" --dest-dir "$(cd "$out" && pwd)"
echo "$out/index.html"
