#!/bin/bash
# venv.sh DIRECTORY CHECKOUT: make DIRECTORY a virtual environment with the toolkit, its two commands
# and its development tools. The Makefile decides when; the stamp it looks at is written last.
set -euo pipefail
. "$(dirname "$0")/apt.sh"
venv=$1 checkout=$2

fail() {
    echo "setup: $*" >&2
    exit 1
}

recent() { # a Python 3.11 or newer; a shim that only exists says no
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

complete() { # Debian keeps the half of venv that installs pip in a package of its own
    "$1" -c 'import ensurepip, venv' 2>/dev/null
}

find_python() { # find_python TEST...: the first candidate that passes all of them
    local candidate test
    for candidate in python3.13 python3.12 python3.11 python3 /usr/bin/python3; do
        command -v "$candidate" >/dev/null || continue
        for test in "$@"; do
            "$test" "$candidate" || continue 2
        done
        echo "$candidate"
        return
    done
    return 1
}

install() {
    local words
    echo "setup: apt-get install $*"
    words=$(apt_install "$@") && return
    tail -n 5 <<<"$words" >&2
    fail "apt-get install $* failed (its last lines are above)"
}

python=$(find_python recent complete || true)
if [[ -z $python ]]; then
    partial=$(find_python recent || true)
    [[ -n $partial ]] && needed=(python3-venv) || needed=(python3 python3-venv)
    # Debian splits venv by minor version too; python3-venv serves only the default one.
    [[ $partial == python3.* ]] && needed+=("$partial-venv")
    if may_install; then
        install "${needed[@]}"
        hash -r
        python=$(find_python recent complete || true)
        [[ -n $python ]] || fail "needs Python 3.11 or newer with venv; this distribution's is older"
    else
        fail "needs Python 3.11 or newer with venv; install with: apt-get install ${needed[*]}"
    fi
fi

sound() { # an environment that works and was made at this place: scripts hold absolute paths
    recent "$venv/bin/python" && grep -qsF "$checkout/$venv/bin/python" "$venv/bin/pip"
}

# A sound one is kept, whoever made it: somebody may be using it, and pip changes only what differs.
if ! sound; then
    # What --clear empties must be an environment.
    [[ ! -e $venv || -e $venv/pyvenv.cfg ]] || fail "$venv is there and is no virtual environment"
    echo "setup: $venv with $("$python" -c 'import platform; print("Python", platform.python_version())')"
    "$python" -m venv --clear "$venv"
fi
rm -f "$venv/.installed"
echo 'setup: pip install -e .[dev]'
# pip's warnings matter only if it fails. "compat" puts the checkout on the path by a .pth file;
# the default is an import hook, which costs every start of the commands 10 ms.
if ! words=$("$venv/bin/python" -m pip install --quiet --config-settings editable_mode=compat --editable '.[dev]' 2>&1); then
    echo "$words" >&2
    fail "pip could not install the toolkit (its words are above)"
fi
echo "$checkout" >"$venv/.installed"
echo "setup: $venv/bin/usdt and $venv/bin/kprobe are ready"
