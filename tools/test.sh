#!/bin/bash
# test.sh PYTEST...: all tests, in two runs at a time: those that trace, and those that only read and
# compute. The first use one of two processors for most of their time.
set -uo pipefail
computing=(arch base bpf btf cpython demangle dwarf elf engine probes tracefs unwind)
log=$(mktemp)
trap 'kill 0 2>/dev/null' INT TERM
trap 'rm -f "$log"' EXIT

"$@" "${computing[@]/#/tests/}" >"$log" 2>&1 &
other=$!
"$@" tests "${computing[@]/#/--ignore=tests/}"
tracing=$?
wait "$other"
computing=$?
cat "$log"

# pytest exits with 5 if it has no test: PYTEST_ARGS may choose those of one run only.
none=5
if ((tracing == none && computing == none)); then
    exit "$none"
fi
((tracing == 0 || tracing == none)) && ((computing == 0 || computing == none))
