"""Variables of programs as arguments of probes: what is found, and why others are not."""

from __future__ import annotations

import gc
import subprocess
from typing import TYPE_CHECKING

import pytest
from fixtures import build
from symbol_programs import compiled
from variable_programs import SCOPES, built

from usdt.arch.locations import Address, Constant, Memory
from usdt.base.errors import LanguageError
from usdt.dwarf.index import type_search
from usdt.engine.compiler.ir import Builtin, Deref
from usdt.engine.compiler.plan import make_plan
from usdt.engine.language import parse_items, parse_probe
from usdt.probes.probe import read_probes
from usdt.probes.sites import points_of
from usdt.uprobes.provider import FunctionRequest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from usdt.engine.compiler.plan import ProbePlan
    from usdt.engine.language.tree import Item
    from usdt.engine.runtime.attach.attach_points import AttachPoint


def planned(program: Path, probe: str, keys: str = "") -> ProbePlan:
    """The plan of a probe on a function, ``work(ITEMS)``, or of keys there."""
    request = parse_probe(f"uprobe:{program}:{probe}")
    found = FunctionRequest(request, keys=parse_items(keys))
    (point,) = found.points(str(program), str(program))
    return plan(point, parse_items(keys) or request.items, keys or request.text)


def plan(point: AttachPoint, items: tuple[Item, ...], text: str) -> ProbePlan:
    return make_plan(
        items, point.arguments, text=text, probe=point.probe, declared=16, types=point.types
    )


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """Frees what the traceback of an error keeps open."""
    yield
    gc.collect()


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("typed"), "-O1", "-g")


@pytest.fixture(scope="module")
def untyped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("untyped"), "-O1")


_REFUSED = {
    "a thread-local variable": ("per_thread", "per_thread: it is thread-local: its address diff"),
    "its address": ("*(int *)&per_thread", "per_thread: it is thread-local"),
    "a misspelt name": ("countr", "work has the parameters n, at column "),
    "what was meant": ("countr", "; did you mean the variable counter?"),
    "the address of a parameter": ("&n", "n is a value without one"),
    "the address of a bit field": ("&config.low", "config.low is a bit field"),
    "a member that is not there": ("config.b", "struct node has no member 'b'"),
    "what is declared only": ("only_declared", "unknown name 'only_declared'"),
}


@pytest.mark.parametrize(("items", "said"), _REFUSED.values(), ids=_REFUSED)
def test_what_cannot_be_read_is_refused(items: str, said: str, typed: Path) -> None:
    with pytest.raises(LanguageError) as caught:
        planned(typed, f"work({items})")
    assert said in str(caught.value)
    assert caught.value.text[caught.value.column :][:1] in ("&", *items.rpartition("&")[2][:1], "b")


def test_an_unknown_name_in_a_large_file_may_need_its_path(
    typed: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    hint = "needs its path, as in ::countr or shop::countr, at column "
    with pytest.raises(LanguageError) as small:
        planned(typed, "work(countr)")
    assert "needs its path" not in str(small.value)
    monkeypatch.setattr(type_search, "_MIN_LARGE", 0)
    with pytest.raises(LanguageError) as large:
        planned(typed, "work(countr)")
    assert hint in str(large.value)
    assert str(large.value).endswith("; did you mean the variable counter?")
    with pytest.raises(LanguageError) as path:
        planned(typed, "work(::countr)")
    assert "needs its path" not in str(path.value)


_NOT_KNOWN = {
    "a type": ("counter", "the type of counter is not known: the file has no debug information; c"),
    "what to write": ("counter", "; cast its address, as in *(int *)&counter"),
    "which of two": ("*(long *)&state", "state: 2 variables have this name; only debug inform"),
    "a name": ("countr", "two has no debug information"),
    "a name like others": ("countr", "; did you mean the variable counter?"),
    "members": ("config.a", "has no debug information, which names parameters and types"),
    "a thread": ("*(int *)&per_thread", "per_thread: it is thread-local"),
}


@pytest.mark.parametrize(("items", "said"), _NOT_KNOWN.values(), ids=_NOT_KNOWN)
def test_what_only_debug_information_knows(items: str, said: str, untyped: Path) -> None:
    with pytest.raises(LanguageError) as caught:
        planned(untyped, f"work({items})")
    assert said in str(caught.value)


def test_a_function_without_parameters_is_told_from_one_without_debug_information(
    tmp_path: Path,
) -> None:
    (tmp_path / "bare.c").write_text("int bare(int n) { return n; }")
    (tmp_path / "code.s").write_text(
        ".globl written\n.type written, @function\nwritten: nop\n.size written, 1\n"
    )
    (tmp_path / "main.c").write_text(
        "int written(void); int bare(int);\n"
        "__attribute__((noinline)) void idle(void) { bare(1); }\n"
        "int main(void) { idle(); return written(); }"
    )
    for words in (["bare.c"], ["-g", "code.s"], ["-g", "main.c"]):
        subprocess.run(["gcc", "-O1", "-c", *words], cwd=tmp_path, check=True)
    program = tmp_path / "program"
    objects = ["bare.o", "code.o", "main.o"]
    subprocess.run(["gcc", "-o", program, *objects], cwd=tmp_path, check=True)
    for function, said in (
        ("idle", "unknown name 'm': idle has no parameters, at column"),
        (
            "bare",
            "no parameters of bare are known: no debug information describes it; arg0… and return",
        ),
        ("written", "no parameters of written are known: it is assembler code; arg0… and return"),
    ):
        with pytest.raises(LanguageError, match=said):
            planned(program, f"{function}(m)")


def test_keys_may_name_variables(typed: Path) -> None:
    found = planned(typed, "work", "counter, text")
    assert [output.key for output in found.outputs] == ["counter", "text"]
    with pytest.raises(
        LanguageError,
        match=r"unknown name 'countr', at column 1 of .*; did you mean the variable counter\?",
    ):
        planned(typed, "work", "countr")


def test_a_built_in_precedes_a_variable_of_its_name(tmp_path: Path) -> None:
    source = "int pid = 3; int step(int n) { return pid += n; } int main(void) { return step(1); }"
    program = compiled(tmp_path, source, "-g", name="steps")
    own, built_in = planned(program, "step(::pid, pid)").outputs
    assert isinstance(own.node, Deref)
    assert isinstance(built_in.node, Builtin)


def test_a_pattern_selects_functions_that_know_the_name(typed: Path) -> None:
    request = FunctionRequest(parse_probe(f"uprobe:{typed}:[wo]*r*(calls)"))
    assert [point.function for point in request.points(str(typed), str(typed))] == ["work"]
    assert any("left out, without parameters calls: other" in note for note in request.notes)


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        pytest.param(("-fPIE", "-pie"), Address, id="relative to the probe"),
        pytest.param(("-fno-pie", "-no-pie"), Constant, id="at a fixed address"),
    ],
)
def test_locations(options: tuple[str, ...], kind: type, tmp_path: Path) -> None:
    program = built(tmp_path, "-O1", "-g", *options)
    request = FunctionRequest(parse_probe(f"uprobe:{program}:work(counter, shared)"))
    (point,) = request.points(str(program), str(program))
    assert [type(one.fetch) for one in point.arguments[:2]] == [kind, kind]
    assert all(one.hidden for one in point.arguments[:2]), "args does not show them"


def test_a_library_may_have_a_variable_elsewhere(tmp_path: Path) -> None:
    source = "int shared, unused; int step(int n) { return shared += n; }"
    library = compiled(tmp_path, source, "-g", "-fPIC", "-shared", name="libstep.so")
    request = FunctionRequest(parse_probe(f"uprobe:{library}:step(shared)"))
    (point,) = request.points(str(library), str(library))
    assert isinstance(point.arguments[0].fetch, Memory)
    with pytest.raises(LanguageError, match="exports it without using it, so a program may have"):
        planned(library, "step(unused)")


def test_names_of_cxx_without_debug_information(tmp_path: Path) -> None:
    program = compiled(tmp_path, SCOPES, "-xc++", "-std=c++17", "-O1", name="scopes")
    known = "&counter, &::counter, &shop::counter, &shop::Cart::total, &shop::inner"
    found = [output.node for output in planned(program, f"shop::Cart::add({known})").outputs]
    assert found[0] == found[1]
    assert len(set(found)) == 4
    with pytest.raises(LanguageError, match="did you mean the variable shop::stock"):
        planned(program, "shop::Cart::add(&shop::stokc)")


def test_usdt_probes_name_variables_of_their_file() -> None:
    path = str(build("default", "globals"))
    (probe,) = (one for one in read_probes(path).probes if one.name == "twin_second")
    items = parse_items("twin, g_int, arg0")
    (point,) = points_of(probe, path, items=items)
    assert [one.name for one in point.arguments] == ["twin", "g_int", "arg0"]
    assert [output.key for output in plan(point, items, "").outputs] == ["twin", "g_int", "arg0"]
    items = parse_items("g_itn")
    (point,) = points_of(probe, path, items=items)
    with pytest.raises(
        LanguageError,
        match=r"unknown name 'g_itn', at column .*; did you mean the variable g_int\?",
    ):
        plan(point, items, "g_itn")


def test_a_missing_file_of_debug_information_is_named(tmp_path: Path) -> None:
    options = ("-O1", "-g", "-gdwarf-5", "-gsplit-dwarf")
    path = built(tmp_path, *options, compiler="clang", kept=None)
    halves = [*tmp_path.glob("*.dwo")]
    contents = halves[0].read_bytes()
    for half in halves:
        half.unlink()
    gone = r"config is not known: part of the debug information is in \S*one.dwo, which was not"
    with pytest.raises(LanguageError, match=gone):
        planned(path, "work(config.a)")
    with pytest.raises(LanguageError, match="did you mean the variable counter"):
        planned(path, "other(countre)")
    for half in halves:
        half.write_bytes(contents[:200])
    with pytest.raises(LanguageError, match=r"one.dwo is damaged or of another build"):
        planned(path, "work(config.a)")
