#!/bin/bash
# packages.sh: see that this system has what the tests and the benchmarks use. As root on Debian what
# is missing is installed; otherwise one line names it, and the tests that need it skip and say so.
# Asked by trying, not by package names: a compiler of one's own serves as well.
set -euo pipefail
. "$(dirname "$0")/apt.sh"

compiles() { # compiles COMPILER SOURCE OPTION...
    local compiler=$1 source=$2
    shift 2
    command -v "$compiler" >/dev/null &&
        "$compiler" "$@" -o /dev/null - <<<"$source" 2>/dev/null
}

any() { # any PATH...: whether one of them exists (a glob that matches nothing stays as it is)
    local path
    for path in "$@"; do
        [[ -e $path ]] && return 0
    done
    return 1
}

has() { # has PACKAGE: whether what it provides is here
    case $1 in
    gcc | g++ | make | bpftrace | chromium | cpio | tmux) command -v "$1" >/dev/null ;;
    binutils) command -v readelf >/dev/null ;;
    gnupg) command -v gpg >/dev/null ;;
    openssh-client) command -v ssh >/dev/null ;;
    openssh-server) any /usr/sbin/sshd ;;
    runc) any /usr/sbin/runc || command -v runc >/dev/null ;;
    libc6-dev) compiles gcc '#include <stdio.h>' -E -x c ;;
    systemtap-sdt-dev) compiles gcc '#include <sys/sdt.h>' -E -x c ;;
    gcc-multilib) compiles gcc 'int main(void) { return 0; }' -m32 -x c ;;
    g++-multilib) compiles g++ $'#include <string>\nint main() { return 0; }' -m32 -x c++ ;;
    postgresql) any /usr/lib/postgresql/*/bin/postgres ;;
    *-jdk-headless) command -v javac >/dev/null ;;
    python3) any /usr/bin/python3.1[0-9] ;;
    qemu-system-x86) command -v qemu-system-x86_64 >/dev/null ;;
    qemu-system-arm) command -v qemu-system-aarch64 >/dev/null && command -v qemu-system-arm >/dev/null ;;
    qemu-system-ppc) command -v qemu-system-ppc64 >/dev/null ;;
    qemu-system-misc) command -v qemu-system-s390x >/dev/null && command -v qemu-system-riscv64 >/dev/null ;;
    clang | gdb | patchelf | rustc | dwz) command -v "$1" >/dev/null ;;
    libc++-dev) any /usr/lib/llvm-*/include/c++/v1/string /usr/include/c++/v1/string ;;
    libc++abi-dev) any /usr/lib/llvm-*/lib/libc++abi.so /usr/lib/*/libc++abi.so ;;
    libbpf-dev) any /usr/include/bpf/usdt.bpf.h ;;
    zsh | fish) command -v "$1" >/dev/null ;;
    mandoc | man-db) command -v "${1/man-db/man}" >/dev/null ;;
    elfutils) command -v eu-elflint >/dev/null ;;
    bpftool) any /usr/sbin/bpftool || command -v bpftool >/dev/null ;;
    python3-bpfcc) any /usr/lib/python3/dist-packages/bcc ;;
    linux-headers-amd64) any /usr/src/linux-headers-*-amd64 "/lib/modules/$(uname -r)/build" ;;
    debhelper) command -v dh >/dev/null ;;
    dh-python) any /usr/bin/pybuild ;;
    dpkg-dev) command -v dpkg-buildpackage >/dev/null ;;
    lintian) command -v lintian >/dev/null ;;
    pybuild-plugin-pyproject) any /usr/share/doc/pybuild-plugin-pyproject ;;
    python3-click) any /usr/lib/python3/dist-packages/click ;;
    python3-pyelftools) any /usr/lib/python3/dist-packages/elftools ;;
    python3-setuptools) any /usr/lib/python3/dist-packages/setuptools ;;
    debian-archive-keyring) any /usr/share/keyrings/debian-archive-keyring.gpg ;;
    esac
}

wanted=(gcc g++ make libc6-dev systemtap-sdt-dev binutils cpio gnupg postgresql default-jdk-headless python3 bpftrace openssh-client openssh-server runc mandoc man-db chromium zsh fish tmux patchelf)
[[ $(uname -m) == x86_64 ]] && wanted+=(gcc-multilib g++-multilib)
# packages.sh vm: what the virtual machines use, and nothing else.
[[ ${1-} == vm ]] && wanted=(qemu-system-x86 qemu-system-arm qemu-system-ppc qemu-system-misc debian-archive-keyring)
# packages.sh peers: what tests/peers compares with beyond binutils.
[[ ${1-} == peers ]] && wanted=(clang libbpf-dev bpftool elfutils python3-bpfcc linux-headers-amd64)

# packages.sh dwarf: compilers and witnesses of debug information (tests/dwarf).
[[ ${1-} == dwarf ]] && wanted=(gcc g++ binutils clang gdb rustc dwz libc++-dev libc++abi-dev)

# packages.sh deb: what builds and checks the Debian package (tools/deb.sh).
[[ ${1-} == deb ]] && wanted=(debhelper dh-python dpkg-dev lintian pybuild-plugin-pyproject python3-click python3-pyelftools python3-setuptools)

missing() {
    local package
    for package in "${wanted[@]}"; do
        has "$package" || echo "$package"
    done
}

mapfile -t absent < <(missing)
((${#absent[@]})) || exit 0

if may_install; then
    echo "packages: apt-get install ${absent[*]}"
    # Together, as that is one run of dpkg; one by one if this distribution lacks one of the names.
    apt_install "${absent[@]}" >/dev/null ||
        for package in "${absent[@]}"; do
            apt install -y --no-install-recommends "$package" >/dev/null || true
        done
    hash -r
    mapfile -t absent < <(missing)
fi
((${#absent[@]} == 0)) ||
    echo "packages: missing: ${absent[*]}; install with: apt-get install ${absent[*]}"
