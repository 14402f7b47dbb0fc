#!/bin/bash
# dist.sh VENV DIRECTORY: the wheel and the source distribution of the commit that is checked out.
# The same commit gives the same bytes, whatever lies about in the checkout.
set -euo pipefail
venv=$(realpath "$1") to=$(realpath -m "$2")

git rev-parse --verify --quiet HEAD >/dev/null || {
    echo 'dist: needs a git checkout: it packs a commit' >&2
    exit 1
}
git diff --quiet HEAD || echo 'dist: what is not committed is left out' >&2
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
git clone --quiet --no-tags . "$copy/checkout"
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
umask 022
rm -f "$to"/usdt_toolkit-*  # of other versions: what follows takes all that is there
cd "$copy/checkout"
if ! words=$("$venv/bin/python" -m build --no-isolation --outdir "$to" 2>&1); then
    tail -n 20 <<<"$words" >&2
    exit 1
fi
cd "$to"
sha256sum -- usdt_toolkit-*
