"""Run a command as a user without root, with the given capabilities and no others.

    python as_user.py CAP_BPF,CAP_PERFMON COMMAND…

setpriv(1) does the same; the virtual machines of the tests do not have it.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from usdt.bpf._syscall import capset, limit_bounding_set, prctl
from usdt.bpf.capabilities import capability_set

if TYPE_CHECKING:
    from pathlib import Path

NOBODY = 65534
NUMBERS = {
    "CAP_DAC_OVERRIDE": 1,
    "CAP_DAC_READ_SEARCH": 2,
    "CAP_KILL": 5,
    "CAP_SETPCAP": 8,
    "CAP_SYS_PTRACE": 19,
    "CAP_SYS_ADMIN": 21,
    "CAP_SYSLOG": 34,
    "CAP_PERFMON": 38,
    "CAP_BPF": 39,
    "CAP_CHECKPOINT_RESTORE": 40,
}
_PR_SET_KEEPCAPS, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE = 8, 47, 2


def words(*names: str) -> tuple[str, ...]:
    """The words that run a command with these capabilities."""
    return sys.executable, __file__, ",".join(names)


def own_parents(path: Path) -> list[Path]:
    """The folders above one of ``tmp_path`` that pytest made, and that another user cannot pass.

    There is one more below pytest-xdist.
    """
    at = next(n for n, folder in enumerate(path.parents) if folder.name.startswith("pytest-of-"))
    return list(path.parents)[: at + 1]


def _main(names: str, *command: str) -> None:
    bits = [NUMBERS[name] for name in names.split(",") if name]
    mask = sum(1 << bit for bit in bits)
    limit_bounding_set(mask)
    prctl("PR_SET_KEEPCAPS", _PR_SET_KEEPCAPS, 1)
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)
    held = capability_set("CapPrm:")
    capset(held, held, mask)  # those of root find the command, and end with its start
    for bit in bits:
        prctl("PR_CAP_AMBIENT", _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, bit)
    os.execvp(command[0], command)


if __name__ == "__main__":
    _main(*sys.argv[1:])
