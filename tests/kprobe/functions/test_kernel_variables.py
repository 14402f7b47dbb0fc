"""Variables of kernels by name: symbols and types as kernels have them, read by programs."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import pytest
from bpfmachine import Machine
from hits import program, shown

import kprobe.functions.variables
from kprobe.functions.kernel_types import KernelTypes
from kprobe.functions.symbols import Kallsyms
from kprobe.functions.variables import KernelVariables
from usdt.arch.locations import AtFunctionReturn, Constant, PerCpuAddress, Register
from usdt.base.errors import LanguageError
from usdt.btf.format import Kind
from usdt.btf.reader import Btf
from usdt.btf.writer import BtfWriter
from usdt.engine.compiler.arguments import Argument
from usdt.engine.compiler.entry_return import split_entry_return
from usdt.engine.compiler.ir import U64, ByAddress, NoValue
from usdt.engine.compiler.plan import make_plan
from usdt.engine.language import parse_probe

if TYPE_CHECKING:
    from pathlib import Path

    from usdt.engine.compiler.plan import ProbePlan

_JIFFIES, _INIT, _OFFSETS = 0xFFFFFFFF82C05000, 0xFFFFFFFF82C10000, 0xFFFFFFFF82A00000
_QUEUES, _QUEUE = 0x24000, 0xFFFF888100024000  # the symbol, and the copy of CPU 3
_MINE = 0xFFFFFFFFC0123000
_KALLSYMS = f"""\
0000000000000000 A __per_cpu_start
{_QUEUES:016x} A runqueues
0000000000034000 A __per_cpu_end
ffffffff81000000 T _stext
ffffffff82000000 T _etext
ffffffff83000000 T _sinittext
ffffffff83000100 t start_kernel
ffffffff83100000 T _einittext
ffffffff82b00000 D linux_banner
{_JIFFIES:016x} D jiffies
{_INIT:016x} T init_task
{_OFFSETS:016x} R __per_cpu_offset
ffffffff82c20000 d twice
ffffffff82c20010 b twice
ffffffff82c30000 D version
ffffffff82c30000 D version_alias
ffffffff81000100 T do_exit
{_MINE:016x} d mine\t[mod]
ffffffffc0123100 d twice\t[mod]
ffffffffc0123200 d version\t[mod]
"""


def kernel_btf() -> Btf:
    """BTF as pahole writes it: with the per-CPU variables alone, and one of another section."""
    made = BtfWriter()
    number = made.integer("unsigned int", 4)
    char = made.integer("char", 1, 2)
    name = made.array(char, 8)
    task = made.composite(
        Kind.STRUCT, "task_struct", 16, [("pid", number, 0, 0), ("comm", name, 64, 0)]
    )
    pointer = made.pointer(task)
    queue = made.composite(
        Kind.STRUCT, "rq", 16, [("nr_running", number, 0, 0), ("curr", pointer, 64, 0)]
    )
    queues = made.record(Kind.VAR, "runqueues", queue, [1])
    version = made.record(Kind.VAR, "version", number, [1])
    made.record(Kind.VAR, "hidden", number, [1])
    made.section(".data..percpu", 32, [(queues, _QUEUES, 16)])
    made.section(".data", 4, [(version, 0, 4)])
    return Btf(made.data(), name="kernel")


def module_btf(base: Btf) -> Btf:
    """BTF of a module, which continues the kernel's."""
    made = BtfWriter(first=base.end, strings_before=base.strings_end)
    number = base.find("unsigned int", Kind.INT)[0]
    own = made.composite(Kind.STRUCT, "own", 8, [("a", number, 0, 0), ("b", number, 32, 0)])
    made.record(Kind.VAR, "mine", own, [1])
    return Btf(made.data(), name="mod", base=base)


_BASE = kernel_btf()
_BTF = {"": _BASE, "mod": module_btf(_BASE)}


_KNOWN = (("unsigned int", Kind.INT), ("task_struct", Kind.STRUCT))
_DECLARED = {
    "jiffies": "volatile unsigned int",
    "init_task": "struct task_struct",
    "linux_banner": "const char []",
}


def variables(text: str = _KALLSYMS, **declared: str) -> KernelVariables:
    """The variables of a kernel; ``declared``: types that only its debug information has."""
    return KernelVariables(Kallsyms(text.encode()), _BTF.get, lambda n: declared.get(n, ""))


def planned(items: str, *names: str, module: str = "", text: str = _KALLSYMS) -> ProbePlan:
    """The plan of items at a function whose return is known, with some variables."""
    request = parse_probe(f"kprobe:f({items})")
    result = Argument("return", U64, AtFunctionReturn(Register(80, 8)), hidden=True)
    arguments = (*variables(text).arguments(names, module), result)
    btf = _BTF[module]
    return make_plan(
        request.items,
        arguments,
        text=request.text,
        probe="kprobe:f",
        declared=0,
        max_struct=64,
        types=KernelTypes(lambda: btf),
        kernel=True,
    )


def read(items: str, *names: str, module: str = "") -> dict[str, Any]:
    """What a program shows of items on CPU 3."""
    made = planned(items, *names, module=module)
    kernel = {
        _JIFFIES: struct.pack("=Q", 4294900000),
        _INIT: struct.pack("=II8s", 0, 0, b"swapper"),
        _OFFSETS: struct.pack("=4Q", 0, 0, 0, _QUEUE - _QUEUES),
        _QUEUE: struct.pack("=IIQ", 7, 0, _INIT),
        _MINE: struct.pack("=II", 11, 12),
        0xFFFFFFFF82C30000: struct.pack("=I", 618),
    }
    machine = Machine(kernel=kernel)
    machine.run(program(made))
    (event,) = shown(made, machine)
    return event


def test_addresses_come_from_symbols_and_types_from_casts() -> None:
    assert read("*(unsigned long *)&jiffies, &jiffies", "jiffies") == {
        "*(unsigned long*)&jiffies": 4294900000,
        "&jiffies": hex(_JIFFIES),
    }
    assert read("((struct task_struct *)&init_task)->comm", "init_task") == {
        "((struct task_struct*)&init_task)->comm": "swapper"
    }


def test_a_per_cpu_variable_is_that_of_the_cpu() -> None:
    items = "runqueues.nr_running, runqueues.curr->comm, &runqueues.curr, runqueues"
    event = read(items, "runqueues")
    assert event.pop("runqueues") == {"nr_running": 7, "curr": _INIT}
    assert event == {
        "runqueues.nr_running": 7,
        "runqueues.curr->comm": "swapper",
        "&runqueues.curr": hex(_QUEUE + 8),
    }
    assert planned("runqueues.nr_running > 6", "runqueues").faultable


def test_variables_of_btf_have_their_type() -> None:
    assert read("version + 1", "version") == {"version+1": 619}


def test_variables_of_modules() -> None:
    assert read("mine.b, mod::mine.a", "mine", "mod::mine", module="mod") == {
        "mine.b": 12,
        "mod::mine.a": 11,
    }
    with pytest.raises(LanguageError, match="mine is known at functions of the module mod"):
        planned("mine.b", "mine")
    assert read("*(int *)&mine", "mine") == {"*(int*)&mine": 11}


def test_debug_information_has_the_types_of_others() -> None:
    found = variables(**_DECLARED).arguments(["jiffies", "init_task", "linux_banner"])
    kinds = [one.type_ref for one in found]
    number, task = (_BASE.find(name, kind)[0] for name, kind in _KNOWN)
    assert kinds[:2] == [ByAddress(number), ByAddress(task)]
    assert isinstance(kinds[2], NoValue), "an array, which BTF does not have"
    (found_cast,) = variables(**_DECLARED).arguments(["jiffies"], cast={"jiffies"})
    assert isinstance(found_cast.type_ref, NoValue), "not looked up where it is cast"


def test_the_kernels_own_comes_before_those_of_modules() -> None:
    (found,) = variables().arguments(["version"])
    assert found.fetch == Constant(0xFFFFFFFF82C30000)
    (found,) = variables().arguments(["version"], "mod")
    assert found.fetch == Constant(0xFFFFFFFFC0123200)
    (found,) = variables().arguments(["vmlinux::version"], "mod")
    assert found.fetch == Constant(0xFFFFFFFF82C30000)


def test_a_kernel_for_one_cpu_has_no_offsets() -> None:
    text = "".join(line for line in _KALLSYMS.splitlines(keepends=True) if "_offset" not in line)
    (found,) = variables(text).arguments(["runqueues"])
    assert found.fetch == Constant(_QUEUES)
    (found,) = variables().arguments(["runqueues"])
    assert found.fetch == PerCpuAddress(_QUEUES, _OFFSETS)


def test_out_reads_at_the_return() -> None:
    made = planned("out(version), out(runqueues.nr_running), version", "version", "runqueues")
    ends = split_entry_return(made)
    assert ends is not None
    assert ends.entry is not None
    assert len(ends.entry.outputs) == 1, "version is read at the entry, the rest at the return"


_REFUSED = {
    "no type": ("jiffies", "the type of jiffies is not in BTF: cast its address, as in *(unsi"),
    "two of a name": ("vmlinux::twice", "twice: /proc/kallsyms has 2 variables of this name"),
    "no symbol": ("hidden", "hidden: its address is not in /proc/kallsyms"),
    "a function": ("do_exit", "unknown name 'do_exit'"),
    "a function of the start": ("start_kernel", "unknown name 'start_kernel'"),
}


@pytest.mark.parametrize(("name", "said"), _REFUSED.values(), ids=_REFUSED)
def test_what_is_not_known_is_refused(
    name: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kprobe.functions.variables, "running_variables", variables)
    with pytest.raises(LanguageError) as caught:
        planned(name, name)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("value", "advice"),
    [
        pytest.param("2", "allow them with: sysctl kernel.kptr_restrict=1", id="from everybody"),
        pytest.param("1", "reading them needs CAP_SYSLOG", id="from those without privileges"),
    ],
)
def test_hidden_addresses_are_told(
    value: str, advice: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "restrict").write_text(f"{value}\n")
    monkeypatch.setattr(kprobe.functions.variables, "_RESTRICT", str(tmp_path / "restrict"))
    lines = (f"{'0' * 16}{line[16:]}\n" for line in _KALLSYMS.splitlines())
    with pytest.raises(LanguageError) as caught:
        planned("*(long *)&jiffies", "jiffies", text="".join(lines))
    said = str(caught.value)
    assert f"jiffies: the kernel hides its addresses (kernel.kptr_restrict is {value})" in said
    assert advice in said


def test_a_kernel_without_variables_in_its_symbols_says_so() -> None:
    few = "ffffffff81000000 T _stext\nffffffff81000100 T do_exit\n"
    with pytest.raises(LanguageError, match="no variables \\(CONFIG_KALLSYMS_ALL\\)"):
        planned("runqueues", "runqueues", text=few)
    assert variables(few).hint("jifies").startswith("; this kernel's symbol table has no variab")
    assert variables().hint("jifies") == "; did you mean the variable jiffies?"
    assert variables().hint("zzz") == ""
