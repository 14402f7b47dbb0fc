# apt.sh, sourced: installing Debian packages quietly, and without asking anything.

may_install() {
    ((EUID == 0)) && command -v apt-get >/dev/null
}

apt() {
    DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=120 -o Acquire::Retries=2 "$@" \
        </dev/null 2>&1
}

# apt_install PACKAGE...: prints apt's words, for the caller to keep or to throw away. The lists are
# fetched only where they are absent or too old to install from.
apt_install() {
    apt install -y --no-install-recommends "$@" && return
    apt update && apt install -y --no-install-recommends "$@"
}
