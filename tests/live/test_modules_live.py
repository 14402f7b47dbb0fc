"""Functions of a kernel module, by the module's own types: those of overlayfs, opening a file."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from functions import PAIRING, WAYS, here, seen
from kernelprobes import kprobe, program, results

from usdt.base.errors import ProbeNotFound
from usdt.btf.files import modules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from usdt.bpf.kprobes import KprobeMethod

pytestmark = pytest.mark.usefixtures("ringbuf", "kprobes")

_NAME = "ovl_open"
_LAYERS = "((struct ovl_fs *)inode->i_sb->s_fs_info)->numlayer"  # struct ovl_fs: the module's alone


@pytest.fixture(scope="module")
def merged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    loaded = Path("/proc/modules")
    if not loaded.exists() or "overlay " not in loaded.read_text():
        pytest.skip("overlayfs is no module here, or not loaded")
    folder = tmp_path_factory.mktemp("overlay")
    lower, upper, work, merged = (folder / name for name in ("lower", "upper", "work", "merged"))
    for one in (lower, upper, work, merged):
        one.mkdir()
    (lower / "text").write_text("of the lower one")
    options = f"lowerdir={lower},upperdir={upper},workdir={work}"
    subprocess.run(["mount", "-t", "overlay", "none", "-o", options, merged], check=True)
    yield merged
    subprocess.run(["umount", merged], check=True)


@pytest.fixture
def types() -> None:
    if "overlay" not in modules():
        pytest.skip("no types of modules: they came with Linux 5.11")


def _reading(merged: Path) -> Callable[[], object]:
    return (merged / "text").read_bytes


@pytest.mark.usefixtures("types")
@pytest.mark.parametrize("way", WAYS)
def test_types_of_the_module_and_of_the_kernel(way: KprobeMethod, merged: Path) -> None:
    probe = f"overlay:{_NAME}(file->f_flags & 3, {_LAYERS}, func)"
    found = seen(_reading(merged), probe, way=here(way))
    assert [event["probe"] for event in found] == [f"kprobe:overlay:{_NAME}"]
    assert [*found[0]["args"].values()][:2] == [0, 2]


@pytest.mark.usefixtures("types")
@pytest.mark.parametrize("way", PAIRING)
def test_entry_and_return_are_one_event(way: KprobeMethod, merged: Path) -> None:
    probe = f"overlay:{_NAME}(return == 0, str(file->f_path.dentry->d_name.name), return)"
    found = seen(_reading(merged), probe, way=here(way))
    assert [[*event["args"].values()] for event in found] == [["text", 0]]


def test_a_pattern_takes_a_modules_functions(merged: Path) -> None:
    source = f"open({str(merged / 'text')!r}).read()"
    found = results("count", "overlay:ovl_*", "-c", program(source), "--by", "func")
    counts = {row["key"]["func"].rpartition(":")[2]: row["count"] for row in found}
    assert counts[_NAME] == 1
    assert all(name.startswith("ovl_") for name in counts)


@pytest.mark.usefixtures("types", "merged")
def test_what_there_is_is_listed() -> None:
    shown = kprobe("info", f"overlay:{_NAME}").stdout
    assert shown.startswith(f"int {_NAME}(struct inode *inode, struct file *file);")
    assert "[overlay]" in shown
    listed = kprobe("list", "overlay:ovl_*").stdout
    assert f"overlay:{_NAME}" in listed or f"{_NAME} [overlay]" in listed


@pytest.mark.usefixtures("merged")
def test_a_function_is_of_its_module() -> None:
    with pytest.raises(ProbeNotFound, match="overlay:inet_bind"):
        seen(os.getpid, "overlay:inet_bind")
