#!/bin/bash
# tests.sh PYTEST WORD...: run tests, and those that failed once more, alone. What is tested here is
# a running kernel and running processes: on a busy machine one of six thousand tests may not see
# what it looks at in time. One that fails twice has failed; one that does not is named.
set -euo pipefail

code=0
"$@" || code=$?
((code == 1)) || exit "$code" # 1: some failed; anything else is no test's fault
echo 'tests: those that failed, once more; named above is what to look at'
exec "$@" --last-failed --last-failed-no-failures=none
