#!/bin/bash
# What `make demo` runs: a live Python service, and its probes as `usdt` sees them.
# Any Python with USDT probes serves, and Debian's has them; without one, a C program of testbins does.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH=$PWD/.venv/bin:$PATH
seconds=${DEMO_SECONDS:-4}
service=

cleanup() {
    [[ -z $service ]] || { kill "$service" && wait "$service"; } 2>/dev/null || true
}
trap cleanup EXIT
trap 'exit 130' INT TERM

fail() {
    echo "demo: $*" >&2
    exit 1
}

show() { # show WORD...: say what is run, then run it
    local word line=
    for word in "$@"; do
        [[ $word == *[!a-zA-Z0-9_./:=,@%+-]* ]] && line+=" '$word'" || line+=" $word"
    done
    printf '\n$%s\n' "$line"
    "$@"
}

say() {
    echo
    printf '# %s\n' "$@"
}

has_probes() {
    [[ -x $1 && -n $(usdt list "$1" "$2" 2>/dev/null) ]]
}

find_python() {
    local candidate
    for candidate in /usr/bin/python3 /usr/bin/python3.[0-9]* /usr/bin/python3.[0-9][0-9] \
        "$(command -v python3)"; do
        [[ $candidate == *-config ]] && continue
        candidate=$(readlink -f "$candidate")
        has_probes "$candidate" 'python:*' && echo "$candidate" && return
    done
    return 1
}

is_alive() {
    sleep 0.3
    kill -0 "$service" 2>/dev/null || fail "the traced program ended at once"
}

trace() { # trace PROBE...: for some seconds; what is missing, if anything, usdt says itself
    show usdt trace -p "$service" -d "$seconds" "$@" ||
        fail "$( ((EUID)) && echo 'tracing needs root: sudo make demo' || echo 'usdt trace failed')"
}

demo_python() { # demo_python PYTHON
    local python=$1
    "$python" tools/demo_service.py &
    service=$!
    is_alive
    say "The probes that are compiled into $python:"
    show usdt list "$python"
    say "A service runs under it, process $service. Its garbage collections and the orders it" \
        "handles, live, for $seconds seconds:"
    # function__return is gone from Python 3.12 on. (function__entry is of no use here: in 3.11 it fires
    # only where an exception is thrown into a generator.)
    if has_probes "$python" python:function__return; then
        trace 'python:gc__start(arg0)' \
            'python:function__return(str(arg1) == "handle_order", str(arg1), arg2)'
    else
        trace 'python:gc__start(arg0)' 'python:audit(str(arg0) == "demo.charge", str(arg0))'
    fi
    say 'The service was not changed, restarted or stopped for that. What to type next:' \
        '  .venv/bin/usdt list -p PID                            every probe of a live process' \
        "  .venv/bin/usdt info $python python:gc__start  where its arguments live" \
        "  .venv/bin/usdt trace -p PID --json 'python:gc__*'     JSON lines" \
        '  .venv/bin/usdt --help'

}

demo_c() {
    make -s -C testbins default/loop >/dev/null || fail "the C program did not compile"
    local program=testbins/out/default/loop
    "$program" -n 1000000 -s 400000 >/dev/null &
    service=$!
    is_alive
    say "No Python with probes is here, so a small C program. Its probes:"
    show usdt list "$program"
    say "It runs as process $service; every hit of its probe for $seconds seconds:"
    trace 'loop:hit(arg0, arg1)'
    say 'What to type next:' '  .venv/bin/usdt list -p PID' '  .venv/bin/usdt --help'
}

if python=$(find_python); then
    demo_python "$python"
elif command -v gcc >/dev/null; then
    demo_c
else
    fail "needs a program with probes: install Debian's python3, or gcc and systemtap-sdt-dev"
fi
