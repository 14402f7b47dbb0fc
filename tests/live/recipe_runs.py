"""Running the recipes of docs/: what each command needs, and what its output tells."""

from __future__ import annotations

import contextlib
import fcntl
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from blockdevice import on_block_device
from services import busy, running_cluster
from skips import need_program

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ("events_of", "need_functions", "surroundings", "told")

_FILE = Path("/tmp/recipe")
_LOCK = _FILE.with_suffix(".lock")


def told(lines: list[str]) -> set[str]:
    """What of an output does not change from run to run: probes, names of items, headings."""
    # Both statements change a row that others change as well, so either may be the one that waits.
    text = "\n".join(lines).replace("do $$", "UPDATE")
    kinds = "tracepoint|rawtp|syscall|kprobe|uprobe|postgresql|python"
    probes = re.findall(rf"(?:{kinds}):\w[\w.:]*", text)
    items = re.findall(r"  ([a-z][\w>.-]*)=", text)
    symbols = r"NO_SOCKET|O_RDONLY|ENOENT|write\+0x|do_exit\+0x|;malloc |^dd;"
    words = r"COUNT|P99|avg|us; count|UPDATE|WALWrite|\(open\)$|\"json.decoder\"|calendar"
    names = re.findall(rf"{symbols}|{words}", text, re.MULTILINE)
    return {*probes, *items, *names}


def events_of(lines: list[str]) -> int:
    """The number of events by the closing line of an output, which tells of no losses."""
    (closing,) = (m for line in lines if (m := re.fullmatch(r"(\d+) events?, 0 lost", line)))
    return int(closing[1])


def need_functions(names: set[str]) -> None:
    """Skip where the kernel has none of that name."""
    known = {line.split()[2] for line in Path("/proc/kallsyms").read_text().splitlines()}
    if lacking := names - known:
        pytest.skip(f"needs a function that other kernels have: {', '.join(sorted(lacking))}")


@contextlib.contextmanager
def surroundings(command: str) -> Iterator[None]:
    """What a command needs: a file on a disk, a busy server, a program; a skip where it is not."""
    if "java" in command:
        need_program("java", "default-jre-headless")
    if "postgresql:" in command:
        with running_cluster() as cluster, busy(cluster):
            yield
    elif str(_FILE) in command:
        with _LOCK.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # two pages have recipes with it
            with on_block_device(_FILE):
                yield
    else:
        yield
