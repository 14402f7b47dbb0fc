#!/bin/bash
# cross.sh: cross compilers for testbins/, unpacked into a cache and not installed: Debian's conflict with
# gcc-multilib, which builds the i386 fixtures. Compilers that the system has are used as they are. No root.
#
#   cross.sh          fetch what is missing; one line says so where that fails
#   cross.sh TRIPLET  print "sysroot" of that compiler: nothing to fetch or use prints nothing
set -euo pipefail
cd "$(dirname "$0")"

triplets=(aarch64-linux-gnu arm-linux-gnueabihf s390x-linux-gnu powerpc64le-linux-gnu riscv64-linux-gnu
    mips64el-linux-gnuabi64)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/usdt-toolkit/cross
root=$cache/root

has() { # has TRIPLET: in the system or in the cache
    command -v "$1-g++" >/dev/null || [[ -e $cache/$1 ]]
}

if (($#)); then
    command -v "$1-g++" >/dev/null || { [[ -e $cache/$1 ]] && echo "$root"; } || true
    exit 0
fi

absent=()
for triplet in "${triplets[@]}"; do
    has "$triplet" || absent+=("$triplet")
done
((${#absent[@]})) || exit 0

failed() {
    echo "cross: no compilers for ${absent[*]}: $1; their fixtures are left out"
    exit 0
}

command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || failed 'they come from Debian'
mkdir -p "$cache/partial" "$root"
exec 9>"$cache/lock"
flock 9
packages=()
for triplet in "${absent[@]}"; do
    packages+=("gcc-$triplet" "g++-$triplet")
done
echo "cross: fetching compilers for ${absent[*]}"
# What the system has of their dependencies is not fetched, and nothing is installed or removed.
options=(-q -y --no-install-recommends --download-only -o "Dir::Cache::archives=$cache" -o Debug::NoLocking=1
    -o APT::Sandbox::User=)
fetch() {
    apt-get "${options[@]}" install "${packages[@]}" </dev/null >"$cache/log" 2>&1
}
fetch || { . ./apt.sh && may_install && apt update >/dev/null && fetch; } || failed "$(tail -n 1 "$cache/log")"
for package in "$cache"/*.deb; do
    dpkg-deb -x "$package" "$root"
    rm "$package"
done
for triplet in "${absent[@]}"; do
    touch "$cache/$triplet"
done
