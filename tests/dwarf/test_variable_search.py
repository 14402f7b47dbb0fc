"""Variables by name without the index: symbols and bytes lead to the units that have them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from kept_builds import compile_in
from skips import need_program
from variable_programs import SCOPES, built

from usdt.dwarf import variable_search
from usdt.dwarf.index import index, type_search
from usdt.dwarf.index.type_search import NotSearchable, TypeSearch
from usdt.dwarf.info import DebugInfo
from usdt.dwarf.units import answers
from usdt.elf.file import ElfFile
from usdt.elf.symbol_table import SymbolTable
from usdt.elf.symbol_tables import SymbolTables
from usdt.uprobes.name_patterns import closest_path

if TYPE_CHECKING:
    from pathlib import Path

    from usdt.dwarf.types.variables import VariableDebug

_BUILDS = {
    "gcc, DWARF 5": ("gcc", "-O1", "-g"),
    "gcc, DWARF 4, compressed": ("gcc", "-O1", "-g", "-gdwarf-4", "-gz"),
    "gcc, 32 bits": ("gcc", "-O1", "-g", "-m32"),
    "clang, DWARF 4": ("clang", "-O1", "-g", "-gdwarf-4"),
}
_NAMES = (
    *("counter", "config", "head", "text", "color", "ratio", "state", "calls", "shared", "lonely"),
    *("table", "per_thread", "limit", "n", "no_such", "work", "next", "::counter", "a::counter"),
)


@pytest.fixture(params=_BUILDS.values(), ids=_BUILDS, scope="module")
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A C program of several files."""
    compiler, *options = request.param
    return built(tmp_path_factory.mktemp("searched"), *options, compiler=compiler)


def _meanings(
    path: Path, names: tuple[str, ...], functions: tuple[str, ...], *, indexed: bool = False
) -> dict[tuple[str, str], VariableDebug | None]:
    # What names mean at functions.
    with ElfFile(str(path)) as elf, SymbolTables(elf) as tables, DebugInfo.of(elf) as info:
        assert info is not None
        if indexed:
            assert info._index is not None
        codes = {one: tables.named(one)[0].address for one in functions}
        return {
            (name, function): info.variable(name, code)
            for function, code in codes.items()
            for name in names
        }


def _without_index(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    monkeypatch.setattr(index, "build", None)


def test_names_mean_the_same_without_the_index(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "indexed"))
    expected = _meanings(path, _NAMES, ("work", "other"), indexed=True)
    _without_index(monkeypatch, tmp_path / "searched")
    assert _meanings(path, _NAMES, ("work", "other")) == expected


_ENDING = ("cause", "limit")
_ENDS = """
typedef unsigned int uint32_t; typedef unsigned long size_t;
typedef unsigned char my_char; typedef int my_uint32_t, my_size_t, your_size_t, your_uint32_t;
struct Owner { static int cause; static const int limit = 7; MEMBERS };
int Owner::cause = 3;
int bound_cause = 4;
char letter; unsigned int number; unsigned long wide; unsigned char small; uint32_t u; size_t s;
my_char c; my_uint32_t mu; my_size_t ms; your_size_t ys; your_uint32_t yu; Owner owner;
long long unsigned int much; short unsigned int little;
int main() { return Owner::cause + bound_cause + Owner::limit + letter + number + owner.a_cause; }
"""


@pytest.mark.parametrize("options", ["gcc -gdwarf-5", "gcc -gdwarf-4", "clang -gdwarf-4"])
def test_names_that_end_many_others_need_no_index(
    options: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = " ".join(f"int {letter}_{end};" for letter in "abcdefghijkl" for end in _ENDING)
    (tmp_path / "ends.cc").write_text(_ENDS.replace("MEMBERS", members))
    compiler, version = options.split()
    command = [need_program(compiler), "-g", version, "ends.cc", "-o", "ends"]
    compile_in(tmp_path, command)
    program = tmp_path / "ends"
    names = ("Owner::cause", "bound_cause", "cause", "ause", "limit", "imit", "t")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "indexed"))
    expected = _meanings(program, names, ("main",), indexed=True)
    assert {name for (name, _), found in expected.items() if found is not None} == {*names[:2]}
    _without_index(monkeypatch, tmp_path / "searched")
    assert _meanings(program, names, ("main",)) == expected
    with ElfFile(str(program)) as elf, DebugInfo.of(elf) as info:
        assert "Owner::cause" in info.variable_names("cause")


def _scopes(folder: Path, compiler: str) -> Path:
    (folder / "scopes.cc").write_text(SCOPES)
    options = ["-std=c++17", "-g", "-gdwarf-4", "-O1"]
    command = [need_program(compiler), *options, "scopes.cc", "-o", "scopes"]
    compile_in(folder, command)
    return folder / "scopes"


_SCOPED = (
    *("counter", "::counter", "shop::counter", "hidden", "inner", "shop::inner", "total"),
    *("Cart::total", "shop::Cart::total", "declared", "opened", "Pool<int>::used", "no_such"),
    *("shop::no_such", "Cart::no_such", "::no_such"),
)


@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_names_in_scopes_mean_the_same(
    compiler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _scopes(tmp_path, compiler)
    functions = ("_ZN4shop4Cart3addEi", "_Z7outsidei")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "indexed"))
    expected = _meanings(path, _SCOPED, functions, indexed=True)
    _without_index(monkeypatch, tmp_path / "searched")
    assert _meanings(path, _SCOPED, functions) == expected


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("countre", "counter"),
        ("Cart::totl", "shop::Cart::total"),
        ("hiden", "(anonymous namespace)::hidden"),
        ("xyzzy", ""),
    ],
)
def test_the_nearest_name_without_the_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, near: str
) -> None:
    path = _scopes(tmp_path, "g++")
    _without_index(monkeypatch, tmp_path / "cache")
    with ElfFile(str(path)) as elf, DebugInfo.of(elf) as info:
        assert info is not None
        found = closest_path(name, info.variable_names(name))
        assert found.rpartition("::")[2] == near.rpartition("::")[2]


NO_SYMBOL = """
int named __asm__("other_name") = 1;
static int discarded = 2, own = 3;
int other(void) { return discarded += named; }
int (*called)(void) = other;
"""


def test_variables_without_a_symbol_of_their_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "two.c").write_text(NO_SYMBOL)
    (tmp_path / "one.c").write_text("extern int (*called)(void);\nint main(void) { called(); }")
    command = [need_program("gcc"), "-g", "-Wl,--discard-all", "one.c", "two.c"]
    compile_in(tmp_path, command)
    path, names = tmp_path / "a.out", ("named", "discarded", "called", "absent")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "indexed"))
    expected = _meanings(path, names, ("main",), indexed=True)
    _without_index(monkeypatch, tmp_path / "searched")
    assert _meanings(path, names, ("main",)) == expected
    assert [bool(one and one.address) for one in expected.values()] == [True, True, True, False]


def test_answers_are_kept(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _without_index(monkeypatch, tmp_path)
    monkeypatch.setattr(answers, "_MIN_COST", 0)
    expected = _meanings(path, _NAMES, ("work",))
    monkeypatch.setattr(TypeSearch, "positions", None)  # nothing is searched
    assert _meanings(path, _NAMES, ("work",)) == expected


def test_similar_names_are_kept(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _without_index(monkeypatch, tmp_path)
    monkeypatch.setattr(answers, "_MIN_COST", 0)
    for _ in range(2):
        with ElfFile(str(path)) as elf, DebugInfo.of(elf) as info:
            assert info is not None
            assert info.variable("countre", 0) is None
            assert closest_path("countre", info.variable_names("countre")) == "counter"
        monkeypatch.setattr(variable_search, "most_alike", None)  # no symbol is read


def test_only_the_index_tells_of_many_variables_of_one_name(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _without_index(monkeypatch, tmp_path)
    monkeypatch.setattr(variable_search, "_MAX_PLACES", 1)
    with ElfFile(str(path)) as elf, DebugInfo.of(elf) as info:
        assert info is not None
        search = info._variable_search
        assert len(search.by_symbol("counter")) == 1
        with pytest.raises(NotSearchable, match="many variables"):
            search.by_symbol("state")


MANY_CLASSES = """
CLASSES
namespace shop { int count = 5; int visits() { return count; } }
int main() { return shop::visits() + SUM; }
"""


def test_members_of_other_classes_are_not_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    letters = "ABCDEFGHIJKL"
    classes = "".join(f"struct {one} {{ static int count; }}; int {one}::count;" for one in letters)
    text = MANY_CLASSES.replace("CLASSES", classes)
    text = text.replace("SUM", "+".join(f"{one}::count" for one in letters))
    (tmp_path / "many.cc").write_text(text)
    command = [need_program("g++"), "-g", "many.cc", "-o", "many"]
    compile_in(tmp_path, command)
    program, names = tmp_path / "many", ("count", "shop::count", "L::count", "::count")
    functions = ("main", "_ZN4shop6visitsEv")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "indexed"))
    expected = _meanings(program, names, functions, indexed=True)
    assert [one is not None for one in expected.values()] == [
        False,
        *[True] * 2,
        False,
        *[True] * 3,
        False,
    ]
    _without_index(monkeypatch, tmp_path / "searched")
    assert _meanings(program, names, functions) == expected


LARGE = {
    "one.cc": """
namespace { const int hidden = 6; }
namespace plan { const int width = 8; }
const int depth = 9;
extern char **environ;
const int *one() { static int n = hidden + plan::width + depth; return environ ? &n : 0; }
""",
    "two.cc": "const int *one(); int main() { return *one(); }",
}


def test_large_files_are_not_searched_for_constants_of_other_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in LARGE.items():
        (tmp_path / name).write_text(text)
    command = [need_program("g++"), "-O1", "-g", "-fPIC", *LARGE]
    compile_in(tmp_path, command)
    program, functions = tmp_path / "a.out", ("main", "_Z3onev")
    _without_index(monkeypatch, tmp_path / "cache.1")
    small = _meanings(program, ("plan::width", "environ", "depth", "hidden", "absent"), functions)
    assert [small[name, "main"] is None for name in ("depth", "hidden", "absent")] == [0, 0, 1]
    monkeypatch.setattr(type_search, "_MIN_LARGE", 0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache.2"))
    for name in ("plan::width", "environ"):  # a path, an imported symbol
        assert None not in _meanings(program, (name,), functions).values()
    monkeypatch.setattr(TypeSearch, "units_with_variables", None)  # nothing is searched
    large = _meanings(program, ("depth", "hidden", "absent"), functions)
    monkeypatch.setattr(answers, "_MIN_COST", 0)
    assert _meanings(program, ("depth", "hidden", "absent"), functions) == large
    monkeypatch.setattr(SymbolTable, "variables", None)  # what an earlier run found is kept
    assert _meanings(program, ("depth", "hidden", "absent"), functions) == large
    lost = {key for key, found in large.items() if (found is None) != (small[key] is None)}
    assert lost == {("depth", "main"), ("hidden", "main")}


def test_a_global_path_finds_constants_of_other_files_in_large_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in LARGE.items():
        (tmp_path / name).write_text(text)
    compile_in(tmp_path, [need_program("g++"), "-O1", "-g", "-fPIC", *LARGE])
    _without_index(monkeypatch, tmp_path / "cache")
    monkeypatch.setattr(type_search, "_MIN_LARGE", 0)
    found = _meanings(tmp_path / "a.out", ("depth", "::depth", "::absent"), ("main",))
    values = {name: one and one.value for (name, _), one in found.items()}
    assert values == {"depth": None, "::depth": 9, "::absent": None}


DECLARED = "struct Owner { static int member; int x; }; int NAME(Owner *o) { return o->x; }"


def test_of_many_units_with_a_name_the_first_are_read_in_large_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = []
    for name in ("one", "two", "three", "four"):
        constant = "" if name == "one" else "\nnamespace late { const int member = 5; }\n"
        text = DECLARED.replace("NAME", name).replace("o->x", "o->x" if name == "one" else "5")
        (tmp_path / f"{name}.cc").write_text(constant + text)
        sources.append(f"{name}.cc")
    (tmp_path / "main.cc").write_text("int main() { return 0; }")
    command = [need_program("g++"), "-g", "-O1", "-gdwarf-4", "main.cc", *sources]
    compile_in(tmp_path, command)
    program, names = tmp_path / "a.out", ("Owner::member", "late::member")
    _without_index(monkeypatch, tmp_path / "cache.1")
    expected = _meanings(program, names, ("main",))
    assert [one is None for one in expected.values()] == [True, False]
    monkeypatch.setattr(type_search, "_MAX_LIKELY", 0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache.2"))
    with pytest.raises(TypeError):  # the index is built
        _meanings(program, names, ("main",))
    monkeypatch.setattr(type_search, "_MIN_LARGE", 0)
    assert _meanings(program, names, ("main",)) == expected
    monkeypatch.setattr(type_search, "_MAX_LIKELY_IN_LARGE", 0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache.3"))
    found = _meanings(program, ("Owner::member",), ("main",))
    assert [*found.values()] == [None]


MEMBERS = """
struct Owner { static const int limit = 7; static int counted; int width; };
namespace shop { const int limit = 8; }
"""


def test_a_class_tells_which_members_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "all.h").write_text(MEMBERS)
    (tmp_path / "one.cc").write_text(
        '#include "all.h"\nint one(Owner *o) { return o->width + o->limit + shop::limit; }'
    )
    (tmp_path / "main.cc").write_text("int one(void *); int absent; int main() { return 0; }")
    command = [need_program("g++"), "-g", "-gdwarf-4", "main.cc", "one.cc"]
    compile_in(tmp_path, command)
    program = tmp_path / "a.out"
    names = ("Owner::limit", "Owner::counted", "Owner::absent", "shop::limit", "shop::absent")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "indexed"))
    expected = _meanings(program, names, ("main",), indexed=True)
    monkeypatch.setattr(type_search, "_MIN_LARGE", 0)
    _without_index(monkeypatch, tmp_path / "cache.1")
    assert _meanings(program, names, ("main",)) == expected
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache.2"))
    with monkeypatch.context() as patch:
        patch.setattr(TypeSearch, "units_with_variables", None)  # nothing is searched
        assert [*_meanings(program, ("Owner::absent",), ("main",)).values()] == [None]
        with pytest.raises(TypeError):
            _meanings(program, ("shop::absent",), ("main",))
    monkeypatch.setattr(TypeSearch, "check_complete", None)  # what is found ends the search
    found = _meanings(program, ("shop::limit",), ("main",))
    assert found["shop::limit", "main"] == expected["shop::limit", "main"] is not None
    with pytest.raises(TypeError):
        _meanings(program, ("shop::Owner",), ("main",))


def test_a_search_that_was_interrupted_begins_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "one.cc").write_text("namespace shop { extern const int limit = 8; }")
    (tmp_path / "main.cc").write_text("namespace shop { const int limit = 9; } int main() {}")
    compile_in(tmp_path, [need_program("g++"), "-g", "main.cc", "one.cc"])
    _without_index(monkeypatch, tmp_path / "cache")
    with ElfFile(str(tmp_path / "a.out")) as elf, DebugInfo.of(elf) as info:
        search = info._variable_search
        with monkeypatch.context() as patch:
            patch.setattr(type_search, "_MAX_HITS", -1)
            with pytest.raises(NotSearchable):
                search.by_name("shop::limit")
        assert search.by_name("shop::limit")
