"""Types of a kernel that shows none of its own: from its image on disk, or from a file."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from kernelprobes import kprobe
from skips import need_program
from tracing_tools import KPROBE

from usdt.btf.files import KERNEL

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("ringbuf", "vmlinux_btf")

_TRACE = ("trace", "-n", "1", "rawtp:sched_switch(prev->comm)")


def hidden(script: str) -> subprocess.CompletedProcess[str]:
    """Run a script where /sys/kernel/btf is empty and /boot is a folder of its own."""
    need_program("unshare", "util-linux")
    mounts = "mount -t tmpfs none /sys/kernel/btf && mkdir -p /boot && mount -t tmpfs none /boot"
    words = ["unshare", "-m", "sh", "-c", f"{mounts} && {script}"]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=100)


def command(*words: str) -> str:
    return shlex.join([KPROBE, *words])


@pytest.fixture
def types(tmp_path: Path) -> Path:
    shutil.copy(KERNEL, tmp_path / "types")
    return tmp_path / "types"


def test_a_kernel_without_types_says_where_they_were_searched() -> None:
    done = hidden(command(*_TRACE))
    assert done.returncode == 1
    assert "nor in /boot/vmlinux-" in done.stderr
    assert "--btf FILE names a file" in done.stderr


def test_its_image_has_them(types: Path) -> None:
    place = f"cp {types} /boot/vmlinux-$(uname -r)"
    for words, shown in (
        (_TRACE, 'prev->comm="'),
        (("info", "--type", "struct list_head"), "struct list_head *next;"),
        (("dump", "struct list_head", "--hex", "00" * 16, "--concise"), "{}"),
    ):
        done = hidden(f"{place} && {command(*words)}")
        assert done.returncode == 0, done.stderr
        assert shown in done.stdout
    done = hidden(f"{place} && {command('btf')} | head -1")
    assert done.stdout.startswith("[1] ")


def test_a_file_that_is_named(types: Path) -> None:
    done = hidden(command(*_TRACE, "--btf", str(types)))
    assert done.returncode == 0, done.stderr
    assert 'prev->comm="' in done.stdout
    assert 'prev->comm="' in kprobe(*_TRACE, "--btf", types).stdout, "beside the kernel's own"
    assert "list_head *next" in kprobe("info", "--btf", types, "--type", "struct list_head").stdout
    done = kprobe(*_TRACE, "--btf", "/nonexistent", code=1)
    assert "/nonexistent: No such file or directory" in done.stderr


@pytest.mark.usefixtures("kprobes")
def test_functions_are_attached_without_ids_of_types(types: Path) -> None:
    probe = "do_sys_openat2(str(filename), return)"
    words = ("trace", "-v", "-n", "1", "--btf", types, "-c", "cat /etc/hostname", probe)
    done = kprobe(*words)
    assert "str(filename)=" in done.stdout
    assert "fentry" not in done.stderr
