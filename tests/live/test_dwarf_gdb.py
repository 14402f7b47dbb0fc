"""What is shown of typed values is what gdb prints of them, in the same run of the same program."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from dwarf_programs import calls, program
from gdb_values import LOST, At, gdb_calls, says_the_same
from streams import without_header
from tracing_tools import run_usdt

from usdt.btf import types as btf_types
from usdt.uprobes.debug_info import debug_of
from usdt.uprobes.functions import FunctionFile
from usdt.uprobes.parameters import DebugParameters
from usdt.uprobes.typed_arguments import problem_of

if TYPE_CHECKING:
    from pathlib import Path

    from usdt.uprobes.functions import ProbeFunction

pytestmark = pytest.mark.usefixtures("ringbuf")

#: Of optimised code gdb's locations hold from the first instruction on if gcc made it, of other
#: code behind the prologue. LLVM's of optimised code hold nowhere for all of them: it counts what
#: is on the stack from where the stack pointer will be.
_PROGRAMS = (
    *(
        (f"{code}v{version}", name)
        for code in ("gccO0", "gccO2", "clangO0")
        for version in (4, 5)
        for name in ("values", "objects")
    ),
    ("rustO0v4", "shapes"),
)
_ABORTED = ("shapes::nested", "shapes::by_value")  # gdb 13 fails an assertion of its own there
_WHOLE = (btf_types.Composite, btf_types.Array)
_SAME = "env -i setarch -R"  # without address randomisation and with the same stack, as gdb has it


def items_of(path: Path, functions: dict[str, ProbeFunction], rust: bool) -> dict[str, list[str]]:
    """For each function: its readable parameters, and what those point at that are pointers."""
    debug = debug_of(str(path), str(path))
    assert debug is not None
    parameters = DebugParameters(debug)
    found: dict[str, list[str]] = {}
    for name, function in functions.items():
        found[name] = items = []
        described = parameters.described(function)
        assert described is not None
        for one in parameters.parameters(function):
            if one.name == "return" or problem_of(one.argument):
                continue
            number = next(p.type_id for p in described.parameters if p.name == one.name)
            pointer = debug.btf.resolve(number)
            if debug.btf.size_of(number) == 16 and not isinstance(pointer, _WHOLE):
                continue  # a number of 16 bytes is shown as bytes
            items.append(one.name)
            if isinstance(pointer, btf_types.Pointer) and not debug.is_reference(number):
                target = debug.btf.resolve(pointer.type_id)
                if isinstance(target, (btf_types.Composite, btf_types.Int)) and not rust:
                    items.append(f"*{one.name}")
    return found


@pytest.mark.parametrize(
    ("variant", "name"), [pytest.param(*one, id="/".join(one)) for one in _PROGRAMS]
)
def test_what_is_shown_is_what_gdb_prints(variant: str, name: str, tmp_path: Path) -> None:
    path = program(variant, name)
    rust = name == "shapes"
    printed = {key: value for key, value in calls(path).items() if key not in _ABORTED}
    functions: dict[str, ProbeFunction] = {}
    with FunctionFile(str(path)) as file:
        for function in printed:
            (found,) = file.find(function.replace("[", "[[]").replace("*", "[*]"))
            functions[function] = found
    items = items_of(path, functions, rust)
    for function, calls_of_it in printed.items():
        said = [one for one in calls_of_it[0] if not one.startswith("return")]
        items[function] += [one for one in said if one not in items[function]] if not rust else []
    wanted = {one.symbol if rust else one.name: items[n] for n, one in functions.items()}
    if rust:
        wanted = {key: [*them, *(f"*{one}" for one in them)] for key, them in wanted.items()}
    entries = None
    if "O2" in variant:
        entries = {one.symbol if rust else one.name: one.start for one in functions.values()}
    gdb = gdb_calls(path, wanted, folder=tmp_path, entries=entries)
    shown = traced(path, tmp_path / "events", functions, items)
    compared, wrong = 0, []
    for function, found in functions.items():
        theirs = gdb[found.symbol if rust else found.name]
        assert len(theirs) == len(shown[found.probe]) == len(printed[function]), function
        for one, other in zip(shown[found.probe], theirs, strict=True):
            for item, value in zip([*items[function], "return"], one.values(), strict=False):
                said_of_it = other.get(item, LOST)
                address = isinstance(value, int) or str(value).startswith("0x")
                if rust and isinstance(said_of_it, At) and not address:
                    said_of_it = other.get(f"*{item}", LOST)  # shown is what it leads to
                if said_of_it is LOST or _unread(value) or _pointed(value, said_of_it):
                    continue
                compared += 1
                if not says_the_same(value, said_of_it):
                    wrong.append((function, item, value, said_of_it))
    assert not wrong, "\n".join(map(str, wrong))
    assert compared > 40, compared


def _unread(value: Any) -> bool:
    # A floating-point number in a register.
    return isinstance(value, dict) and set(value) == {"error"} and "regist" in value["error"]


def _pointed(value: Any, said: Any) -> bool:
    # A pointer is shown with what it points at: that is compared as *pointer.
    return isinstance(said, At) and isinstance(value, dict)


def traced(
    path: Path, output: Path, functions: dict[str, ProbeFunction], items: dict[str, list[str]]
) -> dict[str, list[dict[str, Any]]]:
    """What a run of the program shows: probe → the items of each call."""
    probes = []
    for name, function in functions.items():
        returns = ["return"] if not function.no_return else []
        probes.append(f'uprobe:{path}:"{name}"({", ".join([*items[name], *returns])})')
    words = "trace", "--json", "--max-string", "256", "-o", output, "-c", f"{_SAME} {path}"
    done = run_usdt(*words, *probes)
    assert done.returncode == 0, done.stderr
    found: dict[str, list[dict[str, Any]]] = {one.probe: [] for one in functions.values()}
    for line in without_header(output.read_text()).splitlines():
        event = json.loads(line)
        found[event["probe"]].append(event["args"] | event.get("names", {}))
    return found
