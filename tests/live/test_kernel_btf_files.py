"""Types of a kernel that shows none of its own: from its image on disk, or from a file."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from kernelprobes import kprobe
from skips import need_program
from symbol_programs import compiled
from tracing_tools import KPROBE

from kprobe.functions.symbols import kallsyms_loader
from usdt.btf.files import KERNEL
from usdt.btf.kernel_files import running_build_id

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("ringbuf", "vmlinux_btf")

_TRACE = ("trace", "-n", "1", "rawtp:sched_switch(prev->comm)")


def hidden(script: str) -> subprocess.CompletedProcess[str]:
    """Run a script where /sys/kernel/btf is empty and /boot is a folder of its own."""
    mounts = "mount -t tmpfs none /sys/kernel/btf && mount -t tmpfs none /boot"
    return private(f"{mounts} && {script}")


def private(script: str) -> subprocess.CompletedProcess[str]:
    """Run a script with mounts of its own."""
    need_program("unshare", "util-linux")
    words = ["unshare", "-m", "sh", "-c", f"mkdir -p /boot && {script}"]
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


def test_types_of_variables_are_in_its_debug_information(tmp_path: Path) -> None:
    if not kallsyms_loader().result().variables("__start_BTF"):
        pytest.skip("no BTF in the kernel's image (CONFIG_DEBUG_INFO_BTF)")
    build_id = f"-Wl,--build-id=0x{running_build_id()}"
    source = "const unsigned short __start_BTF = 1; int main(void) { return 0; }"
    image = compiled(tmp_path, source, "-g", build_id, name="image")
    words = ("trace", "-n", "1", "rawtp:sched_switch(__start_BTF)")
    script = f"mount -t tmpfs none /boot && cp {image} /boot/vmlinux-$(uname -r)"
    done = private(f"{script} && {command(*words)}")
    assert done.returncode == 0, done.stderr
    assert "__start_BTF=60319" in done.stdout


@pytest.mark.usefixtures("kprobes")
def test_functions_are_attached_without_ids_of_types(types: Path) -> None:
    probe = "do_sys_openat2(str(filename), return)"
    words = ("trace", "-v", "-n", "1", "--btf", types, "-c", "cat /etc/hostname", probe)
    done = kprobe(*words)
    assert "str(filename)=" in done.stdout
    assert "fentry" not in done.stderr
