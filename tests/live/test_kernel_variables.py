"""Variables of this kernel by name: what is shown is what the kernel says elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kernelprobes import events_of, kprobe, results

from kprobe.functions.symbols import kallsyms_loader
from usdt.btf.format import Kind
from usdt.btf.reader import Btf

pytestmark = pytest.mark.usefixtures("ringbuf")

_CALLS = "import os\nfor _ in range(3): os.getpgid(0)"


@pytest.fixture(scope="module")
def named() -> None:
    if not kallsyms_loader().result().variables("linux_banner"):
        pytest.skip("no variables in /proc/kallsyms (CONFIG_KALLSYMS_ALL)")


@pytest.fixture(scope="module")
def typed(named: None) -> None:
    """Types of variables: per-CPU ones are in BTF since pahole 1.18."""
    if not Path("/sys/kernel/btf/vmlinux").exists():
        pytest.skip("no BTF of the kernel (CONFIG_DEBUG_INFO_BTF)")
    if not Btf.from_kernel().find("runqueues", Kind.VAR):
        pytest.skip("no variables in the kernel's BTF (pahole 1.18)")


def calls_show(items: str) -> list[dict[str, Any]]:
    return [event["args"] for event in events_of(_CALLS, f"syscall:getpgid({items})")]


@pytest.mark.usefixtures("named")
def test_addresses_of_variables() -> None:
    banner = Path("/proc/version").read_text(encoding="utf-8").strip()
    (one, *_) = calls_show("str(&linux_banner, 60), ksym(&init_task), *(unsigned long *)&jiffies")
    assert banner.startswith(one["str(&linux_banner,60)"][:50])
    assert one["ksym(&init_task)"]["symbol"] == "init_task"
    assert one["*(unsigned long*)&jiffies"] > 0


@pytest.mark.usefixtures("typed")
def test_types_by_casts() -> None:
    cast = "((struct task_struct *)&init_task)"
    events = calls_show(f'{cast}->comm, {cast}->pid, {cast}->comm == "swapper*"')
    assert events == 3 * [{f"{cast.replace(' *', '*')}->comm": "swapper/0", f"{cast}->pid": 0}] or {
        value for event in events for value in event.values()
    } == {"swapper/0", 0}


@pytest.mark.usefixtures("typed")
def test_a_per_cpu_variable_is_that_of_the_cpu() -> None:
    items = "runqueues.cpu - cpu, runqueues.curr->pid - tid, runqueues.curr->comm == comm"
    events = calls_show(items.rpartition(",")[0])
    assert len(events) == 3
    assert {value for event in events for value in event.values()} == {0}
    rows = results("count", "-d", "0.2", "rawtp:sched_switch", "--by", "runqueues.cpu - cpu")
    assert [row["key"]["runqueues.cpu-cpu"] for row in rows] == [0]


@pytest.mark.usefixtures("kprobes", "typed")
def test_functions_read_them_at_entry_and_return() -> None:
    probe = "do_sys_openat2(runqueues.cpu - cpu, out(runqueues.cpu) - cpu, return)"
    events = events_of("open('/dev/null').close()", probe)
    assert events
    assert {event["args"]["out(runqueues.cpu)-cpu"] for event in events} == {0}


@pytest.fixture
def overlay() -> str:
    path = Path("/sys/module/overlay/parameters/redirect_dir")
    if not path.exists():
        pytest.skip("overlayfs is no module here, or not loaded")
    return path.read_text().strip()


@pytest.mark.usefixtures("named")
def test_variables_of_modules(overlay: str) -> None:
    items = "*(bool *)&ovl_redirect_dir_def + 0, *(bool *)&overlay::ovl_redirect_dir_def + 0"
    (one, *_) = calls_show(items)
    assert {"NY"[value] for value in one.values()} == {overlay}


@pytest.mark.usefixtures("named")
def test_a_type_that_is_not_known_is_an_error() -> None:
    done = kprobe("trace", "syscall:getpgid(jiffies)", code=2)
    typed = Path("/sys/kernel/btf/vmlinux").exists() and Btf.from_kernel().find("jiffies", Kind.VAR)
    wanted = "the type of jiffies is not in BTF: cast its address, as in *(unsigned long *)&jiffies"
    assert wanted in done.stderr or typed


def test_symbols_of_every_kernel() -> None:
    if not kallsyms_loader().result().variables("__start_BTF"):
        pytest.skip("no BTF in the kernel's image (CONFIG_DEBUG_INFO_BTF)")
    assert calls_show("*(u16 *)&__start_BTF") == 3 * [{"*(u16*)&__start_BTF": 0xEB9F}]


def test_a_kernel_without_variables_says_so() -> None:
    if kallsyms_loader().result().variables("linux_banner"):
        pytest.skip("this kernel's symbol table has variables")
    done = kprobe("trace", "syscall:getpgid(jiffies)", code=2)
    assert "this kernel's symbol table has no variables (CONFIG_KALLSYMS_ALL)" in done.stderr
