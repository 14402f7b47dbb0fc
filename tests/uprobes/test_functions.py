"""Functions of files: by name, pattern, offset and address; and why there are none."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from function_programs import calls, needs_libc
from skips import need_program
from symbol_programs import compiled

from usdt.arch.calling_convention import CONVENTIONS
from usdt.arch.locations import AtFunctionReturn, Memory, Register, Unreadable
from usdt.base.errors import LanguageError, ProbeNotFound, TracingError
from usdt.base.machine import KERNEL_MACHINE, word_size
from usdt.elf.file import ElfFile
from usdt.elf.format import STT_FUNC, STT_NOTYPE
from usdt.elf.symbol_tables import SymbolTables
from usdt.engine.language import parse_probe
from usdt.targets.search.target_files import resolve_target
from usdt.uprobes.arguments import MAX_ARGUMENTS, arguments_of, call_stack
from usdt.uprobes.functions import FunctionFile, ProbeFunction
from usdt.uprobes.provider import FunctionRequest
from usdt.uprobes.unsafe_instructions import is_unsafe, refused_reason

if TYPE_CHECKING:
    from pathlib import Path

_ODD = r"""
#include <stdlib.h>
#include <stdio.h>
int variable = 1;
int first(int n) { return n + 1; }
int same(int n) __attribute__((alias("first")));
static int one(int n) { return n; }
static int two(int n) { return n + 2; }
static void *choose(void) { return variable ? one : two; }
int chosen(int n) __attribute__((ifunc("choose")));
int main(void) { printf("%d\n", chosen(first(1))); return 0; }
"""
_OTHER = "static int hidden(int n) { return n * 2; } int (*%s)(int) = hidden;"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("functions")


@pytest.fixture(scope="module")
def program(folder: Path) -> Path:
    return calls(folder)


@pytest.fixture(scope="module")
def odd(folder: Path) -> Path:
    return compiled(folder, _ODD, "-O1", "-fno-inline", name="odd")


@pytest.fixture(scope="module")
def cxx(folder: Path) -> Path:
    return compiled(folder, _CXX, "-O0", "-xc++", name="cxx")


def found(path: Path, pattern: str, **settings: bool) -> list[ProbeFunction]:
    with FunctionFile(str(path)) as file:
        file.described = settings.get("described", False)
        return file.find(pattern)


def nm(path: Path) -> dict[str, int]:
    """What nm(1) says: name → address."""
    need_program("nm", "binutils")
    text = subprocess.run(["nm", str(path)], check=True, capture_output=True, text=True).stdout
    fields = (line.split() for line in text.splitlines())
    return {words[2]: int(words[0], 16) for words in fields if len(words) == 3}


def why(path: Path, pattern: str) -> str:
    with pytest.raises(ProbeNotFound) as caught:
        found(path, pattern)
    return str(caught.value)


def test_every_function_that_nm_knows_is_found(program: Path) -> None:
    known = nm(program)
    shown = {one.symbol: one.start for one in found(program, "*")}
    for name in ("fib", "many", "erase", "leap", "level", "work", "main"):
        assert shown[name] == known[name]
        (function,) = found(program, name)
        assert (function.start, function.name, function.offset_in_function) == (
            known[name],
            name,
            0,
        )


def test_offsets_in_the_file_hold_the_code(program: Path) -> None:
    (function,) = found(program, "fib")
    start = program.read_bytes()[function.offset : function.offset + 16]
    text = subprocess.run(
        [need_program("objdump", "binutils"), "-d", "--disassemble=fib", str(program)],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split("<fib>:\n")[1]
    code = bytes.fromhex(text.splitlines()[0].split("\t")[1].replace(" ", ""))
    assert start.startswith(code)


def test_an_offset_belongs_to_its_function(program: Path) -> None:
    (function,) = found(program, "fib")
    (inside,) = (
        found(program, "fib+0x1") if word_size(KERNEL_MACHINE) == 8 else found(program, "fib+4")
    )
    assert inside.offset - function.offset == inside.offset_in_function
    assert inside.label == f"fib+{inside.offset_in_function:#x}"
    assert found(program, f"{inside.start + inside.offset_in_function:#x}") == [inside]
    assert found(program, f"{function.start:#x}")[0].symbol == "fib"
    assert "is outside the function" in why(program, f"fib+{function.size}")


def test_aliases_are_one_function(odd: Path) -> None:
    (function,) = found(odd, "[fs][ia][rm]*")
    assert {function.symbol, *function.aliases} == {"first", "same"}
    (one,) = found(odd, "same", described=True)
    assert (one.name, one.aliases) == ("same", ("first",))


def test_several_functions_of_one_name(folder: Path) -> None:
    (folder / "a.c").write_text(_OTHER % "a")
    (folder / "b.c").write_text(
        _OTHER % "b" + " int main(void) { return a ? 0 : 1; }".replace("a ", "b ")
    )
    path = folder / "twins"
    files = [str(folder / "a.c"), str(folder / "b.c")]
    subprocess.run([need_program("gcc"), "-O0", "-o", str(path), *files], check=True, timeout=60)
    with FunctionFile(str(path)) as file:
        assert len({one.start for one in file.find("hidden")}) == 2
        assert len(file.notes) == 1
        assert "2 functions are named hidden" in file.notes[0]


_CXX = """
namespace ns {
struct A { int f(int x) const; int f(const char *s); A &operator<<(int); };
int A::f(int x) const { return x; }
int A::f(const char *s) { return *s; }
A &A::operator<<(int) { return *this; }
template <class T> T g(T t) { return t; }
}
int main() { ns::A a; a << 1; return a.f(0) + a.f("") + ns::g(0) + (int)ns::g(0L); }
"""


@pytest.mark.parametrize(
    ("pattern", "symbols"),
    [
        ("ns::A::f", ["_ZNK2ns1A1fEi", "_ZN2ns1A1fEPKc"]),
        ("ns::A::f[(]int[)] const", ["_ZNK2ns1A1fEi"]),
        ("_ZN2ns1A1fEPKc", ["_ZN2ns1A1fEPKc"]),
        ("ns::A::operator<<", ["_ZN2ns1AlsEi"]),
        ("ns::g", ["_ZN2ns1gIiEET_S1_", "_ZN2ns1gIlEET_S1_"]),
        ("ns::g<long>", ["_ZN2ns1gIlEET_S1_"]),
        ("ns::A::*", ["_ZNK2ns1A1fEi", "_ZN2ns1A1fEPKc", "_ZN2ns1AlsEi"]),
    ],
)
def test_names_of_cxx(cxx: Path, pattern: str, symbols: list[str]) -> None:
    assert [one.symbol for one in found(cxx, pattern)] == symbols


@pytest.mark.parametrize(
    ("name", "nearest"), [("ns::A::ff", "ns::A::f"), ("ns::AB::f", "ns::A::f"), ("mian", "main")]
)
def test_a_misspelt_name_of_cxx(cxx: Path, name: str, nearest: str) -> None:
    assert f"nearest is {nearest}" in why(cxx, name)


def test_names_of_code_are_those_of_functions_that_can_be_probed(odd: Path, cxx: Path) -> None:
    for path in (odd, cxx):
        with ElfFile(str(path)) as elf, SymbolTables(elf) as tables:
            code = {
                one.name
                for one in tables.matching(lambda _: True)
                if not one.imported
                and one.type in (STT_FUNC, STT_NOTYPE)
                and elf.offset_of(one.address, executable=True) is not None
            }
            names = tables.code_names()
            assert sorted(names) == sorted(code)
            for text in ("ns", "main", "_", "no such text"):
                every = [one for one in tables.matching(lambda _: True) if text in one.name]
                assert tables.matching(lambda name, text=text: text in name, text) == every


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("chosen", "indirect function (IFUNC)"),
        ("variable", "is a variable"),
        ("printf", "is imported"),
        ("printf@plt", "is imported"),
        ("firts", "nearest is first"),
        ("prin*", "imported ones do: trace them"),
        ("nothing*", "no function matches"),
        ("0x1", "not in code"),
    ],
)
def test_what_cannot_be_traced_is_said(odd: Path, pattern: str, reason: str) -> None:
    assert reason in why(odd, pattern)


def test_stubs_of_imported_functions_are_refused(odd: Path) -> None:
    with FunctionFile(str(odd)) as file:
        stub = next(one for one in file.elf.sections if one.name.startswith(".plt"))
        with pytest.raises(ProbeNotFound, match="stub"):
            file.find(f"{stub.address:#x}")


def test_a_stripped_file_and_its_debug_file(program: Path, folder: Path) -> None:
    objcopy = need_program("objcopy", "binutils")
    stripped = folder / "stripped"
    shutil.copy(program, stripped)
    subprocess.run(["strip", str(stripped)], check=True)
    assert "stripped" in why(stripped, "fib")
    debug = folder / "stripped.debug"
    subprocess.run([objcopy, "--only-keep-debug", str(program), str(debug)], check=True)
    subprocess.run([objcopy, f"--add-gnu-debuglink={debug}", str(stripped)], check=True)
    assert [one.start for one in found(stripped, "fib")] == [nm(program)["fib"]]


def test_go_is_recognised_and_its_returns_refused(program: Path, folder: Path) -> None:
    text = folder / "buildinfo"
    text.write_bytes(b"\xff Go buildinf:")
    path = folder / "gopher"
    words = ["--add-section", f".go.buildinfo={text}", str(program), str(path)]
    subprocess.run([need_program("objcopy", "binutils"), *words], check=True)
    request = FunctionRequest(parse_probe(f"uprobe:{path}:fib(return)"))
    with pytest.raises(TracingError, match="Go program: a return probe would crash it"):
        request.functions(str(path), str(path))
    (function,) = FunctionRequest(parse_probe(f"uprobe:{path}:fib")).functions(str(path), str(path))
    assert not function.is_go, "a C function beside Go code"
    *_, result = arguments_of(KERNEL_MACHINE, is_go=True, no_return=function.no_return)
    assert isinstance(result.fetch, Unreadable)


@pytest.mark.parametrize(
    ("name", "refused"),
    [
        pytest.param("__GI___vfork", True, id="glibc's own name of vfork"),
        pytest.param("_setjmp", True, id="leading underscores"),
        pytest.param("Iclone", False, id="a name that merely ends in clone"),
        pytest.param("GIGI_setjmp", False, id="a name that merely ends in setjmp"),
    ],
)
def test_functions_that_return_twice_are_known_by_their_whole_name(
    tmp_path: Path, name: str, refused: bool
) -> None:
    path = compiled(tmp_path, f"int {name}(void) {{ return 1; }}", "-shared", "-fPIC", name="one")
    (function,) = found(path, name)
    assert bool(function.no_return) is refused


@needs_libc
@pytest.mark.parametrize("name", ["_setjmp", "vfork", "getcontext", "__sigsetjmp"])
def test_no_return_probe_where_it_would_break_the_program(name: str) -> None:
    path = resolve_target("libc").path
    request = FunctionRequest(parse_probe(f"uprobe:libc:{name}(return)"))
    with pytest.raises(TracingError, match="would break the program"):
        request.points(path, path)
    pattern = FunctionRequest(parse_probe("uprobe:libc:*set[jl]*(return)"))
    points = pattern.points(path, path)
    assert points
    assert not [one for one in points if one.function.endswith("setjmp")]
    assert FunctionRequest(parse_probe(f"uprobe:libc:{name}")).points(path, path)[0].call is None


@pytest.mark.parametrize(
    ("code", "machine", "bad"),
    [
        pytest.param("62 e2 7d 28 7a ce", "x86_64", True, id="EVEX vpbroadcastb, read as jp"),
        pytest.param("c5 ed 74 d9", "x86_64", True, id="VEX vpcmpeqb, read as je"),
        pytest.param("c4 e2 79 90 04 00", "x86_64", True, id="VEX vpgatherdd, read as nop"),
        pytest.param("c5 f8 c2 c1 00", "x86_64", True, id="VEX vcmpps, read as ret"),
        pytest.param("64 c5 ed 74 1f", "x86_64", True, id="with a segment prefix"),
        pytest.param("c5 f9 6e c6", "x86_64", False, id="VEX vmovd"),
        pytest.param("62 e1 fe 28 6f 17", "x86_64", False, id="EVEX vmovdqu64"),
        pytest.param("74 05", "x86_64", False, id="je itself"),
        pytest.param("f3 0f 1e fa", "x86_64", False, id="endbr64"),
        pytest.param("0f 74 c1", "x86_64", False, id="MMX pcmpeqb"),
        pytest.param("c5 ed 74 d9", "i386", True, id="VEX in 32 bits"),
        pytest.param("c5 10 74 00", "i386", False, id="lds, je"),
        pytest.param("62 10 00 00 74", "i386", False, id="bound"),
        pytest.param("8f 00 74 01", "x86_64", False, id="pop"),
        pytest.param("62 e2 7d", "x86_64", False, id="cut short"),
        pytest.param("", "x86_64", False, id="nothing"),
        pytest.param("62 e2 7d 28 7a ce", "aarch64", False, id="another CPU"),
    ],
)
def test_instructions_that_the_kernel_misreads(code: str, machine: str, *, bad: bool) -> None:
    assert is_unsafe(bytes.fromhex(code), machine) is bad


@pytest.mark.parametrize(
    ("code", "machine", "reason"),
    [
        pytest.param("f0 ff 0f", "x86_64", "an instruction with the prefix f0 (lock)", id="lock"),
        pytest.param(
            "66 66 2e 0f 1f 84 00",
            "x86_64",
            "an instruction with the prefix 2e (cs)",
            id="long nop",
        ),
        pytest.param("3e ff e0", "x86_64", "an instruction with the prefix 3e (ds)", id="notrack"),
        pytest.param("0f 05", "x86_64", "the instruction 0f 05", id="syscall"),
        pytest.param("48 0f 07", "x86_64", "the instruction 0f 07", id="sysret with REX"),
        pytest.param("f4", "i386", "the instruction f4", id="hlt"),
        pytest.param("64 48 8b 04 25", "x86_64", "", id="fs"),
        pytest.param("f3 0f 1e fa", "x86_64", "", id="endbr64"),
        pytest.param("66 0f 1f 84 00", "x86_64", "", id="a nop without a segment"),
        pytest.param("55", "x86_64", "", id="push"),
        pytest.param("40", "i386", "", id="inc, not REX"),
        pytest.param("", "x86_64", "", id="nothing"),
        pytest.param("f0 ff 0f", "aarch64", "", id="another CPU"),
    ],
)
def test_instructions_that_the_kernel_refuses(code: str, machine: str, reason: str) -> None:
    assert refused_reason(bytes.fromhex(code), machine) == reason


@pytest.mark.skipif(KERNEL_MACHINE != "x86_64", reason="needs x86-64: it is about its instructions")
def test_functions_that_cannot_carry_a_probe_are_refused(folder: Path) -> None:
    source = """
    asm(".globl locked_one, locked_two\\n.type locked_one, @function\\n"
        ".type locked_two, @function\\nlocked_one: lock decl (%rdi)\\nret\\n"
        "locked_two: mov %edi, %eax\\nret");
    int main(void) { return 0; }
    """
    path = compiled(folder, source, name="locked")
    assert "begins with an instruction with the prefix f0 (lock), which Linux" in why(
        path, "locked_one"
    )
    with FunctionFile(str(path)) as file:
        assert [one.name for one in file.find("locked_*")] == ["locked_two"]
        assert "locked_one" in file.notes[0]


@pytest.mark.skipif(KERNEL_MACHINE != "x86_64", reason="needs x86-64: it is about its instructions")
def test_functions_that_a_probe_would_damage_are_refused(folder: Path) -> None:
    source = """
    asm(".globl vector_one, vector_two\\n.type vector_one, @function\\n"
        ".type vector_two, @function\\nvector_one: vpcmpeqb %ymm1, %ymm2, %ymm3\\nret\\n"
        "vector_two: vmovd %esi, %xmm0\\nret");
    int main(void) { return 0; }
    """
    path = compiled(folder, source, name="vectors")
    assert "mistakes for a jump" in why(path, "vector_one")
    with FunctionFile(str(path)) as file:
        assert [one.name for one in file.find("vector_*")] == ["vector_two"]
        assert "vector_one" in file.notes[0]


def test_a_function_without_a_file() -> None:
    with pytest.raises(LanguageError, match="names no file"):
        FunctionRequest(parse_probe("uprobe:malloc"))


def test_items_of_the_entry_inside_a_function(program: Path) -> None:
    for item in ("arg0", "return", "str(arg1)"):
        request = FunctionRequest(parse_probe(f"uprobe:{program}:level+4(pid, {item})"))
        with pytest.raises(LanguageError, match="inside a function") as caught:
            request.points(str(program), str(program))
        assert caught.value.column > caught.value.text.index("(")


def test_a_parameter_inside_a_function_needs_debug_information(folder: Path) -> None:
    path = compiled(folder, _ODD, name="inside")
    request = FunctionRequest(parse_probe(f"uprobe:{path}:first+4(n)"))
    reason = r"first\+0x4 is inside a function, whose variables are not known: .* has no debug"
    with pytest.raises(LanguageError, match=reason):
        request.points(str(path), str(path))


def test_a_parameter_that_the_prologue_has_not_stored_is_not_read(folder: Path) -> None:
    path = compiled(folder, _ODD, "-g", "-O0", name="prologue")
    request = FunctionRequest(parse_probe(f"uprobe:{path}:first+4(n)"))
    (point,) = request.points(str(path), str(path))
    (found,) = [one for one in point.arguments if one.name == "n"]
    assert isinstance(found.fetch, Unreadable)
    assert "in the function's prologue" in found.fetch.reason


@pytest.mark.parametrize("machine", sorted(CONVENTIONS))
def test_arguments_of_every_cpu(machine: str) -> None:
    *arguments, result = arguments_of(machine)
    stack = call_stack(machine)
    assert stack is not None
    assert [one.name for one in arguments] == [f"arg{n}" for n in range(MAX_ARGUMENTS)]
    assert isinstance(result.fetch, AtFunctionReturn)
    assert all(one.hidden for one in (*arguments, result))
    registers = [one.fetch for one in arguments if isinstance(one.fetch, Register)]
    assert len(registers) == len(CONVENTIONS[machine].arguments)
    assert len({one.offset for one in registers}) == len(registers)
    behind = [one.fetch for one in arguments[len(registers) :]]
    word = word_size(machine)
    for number, fetch in enumerate(behind):
        assert isinstance(fetch, Memory)
        assert fetch.base == stack.pointer.offset
        assert fetch.displacement == CONVENTIONS[machine].stack + number * word
        assert (fetch.size, fetch.address_size) == (word, word)


def test_listing_and_describing(program: Path) -> None:
    from tracing_tools import run_usdt

    done = run_usdt("list", "--json", program, "uprobe:[fl]*")
    names = [json.loads(line)["function"] for line in done.stdout.splitlines()]
    assert {"fib", "fill", "leap", "leaps", "level"} <= set(names)
    done = run_usdt("info", "--json", f"uprobe:{program}:fib")
    shown = json.loads(done.stdout)
    assert (shown["function"], shown["address"]) == ("fib", nm(program)["fib"])
    assert shown["arguments"]["arg0"]
    assert "return" in shown["arguments"]
    assert "fib" in run_usdt("list", f"uprobe:{program}:fib").stdout
    assert "arg0" in run_usdt("info", program, "uprobe:fib").stdout
