#!/bin/bash
# deb.sh SOURCE-DISTRIBUTION DIRECTORY: build the Debian package in DIRECTORY and let lintian check it.
# What Debian adds to the sources is in contrib/debian. dpkg takes the time from its changelog, so the
# same sources give the same bytes.
set -euo pipefail
sdist=$(realpath "$1") to=$2
"$(dirname "$0")/packages.sh" deb
command -v dpkg-buildpackage >/dev/null || exit 1  # and what to install has been said

mkdir -p "$to"
cd "$to"
rm -rf usdt-toolkit usdt-toolkit_*
mkdir usdt-toolkit
tar -xzf "$sdist" --strip-components=1 -C usdt-toolkit
cp -r usdt-toolkit/contrib/debian usdt-toolkit/debian
umask 022
# The system's Python, and not one that comes before it in PATH.
if ! (cd usdt-toolkit && PATH=/usr/sbin:/usr/bin:/sbin:/bin dpkg-buildpackage -us -uc -b) >build.log 2>&1; then
    tail -n 20 build.log >&2
    echo "deb: dpkg-buildpackage failed; all it said is in $PWD/build.log" >&2
    exit 1
fi
lintian --allow-root --fail-on error,warning --tag-display-limit 0 usdt-toolkit_*.changes
rm -rf usdt-toolkit
sha256sum usdt-toolkit_*.deb
