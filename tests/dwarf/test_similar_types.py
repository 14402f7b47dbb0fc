"""Misspelled names of types in large files: the message names what was meant, without an index."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest
from kept_builds import compile_in
from skips import need_program

from usdt.base.errors import BtfError
from usdt.dwarf.index import index, type_search
from usdt.dwarf.index.type_search import TypeSearch
from usdt.dwarf.info import DebugInfo
from usdt.dwarf.units import answers
from usdt.dwarf.units.constants import TypeKind
from usdt.elf.file import ElfFile

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SOURCE = """
struct Java_thread_call { char name[9]; };
class JavaThread { public: virtual ~JavaThread(); long member; };
JavaThread::~JavaThread() {}
struct SubJavaLock { int x; }; struct JavaLock { int x, y; };
struct Heap { enum class Cause : short { Full }; Cause cause; };
namespace gc { struct Region { long a, b; }; typedef long mark_t; }
int Java_thread(int Heapp) { return Heapp; }
SubJavaLock sub; JavaLock lock; Heap heap; gc::Region region; gc::mark_t mark;
Java_thread_call call;
int main() { JavaThread one; return Java_thread(one.member); }
"""
BUILDS = [
    pytest.param(("g++", ("-gdwarf-5",)), id="g++, DWARF 5"),
    pytest.param(("g++", ("-gdwarf-4", "-gz")), id="g++, DWARF 4, compressed"),
    pytest.param(("clang++", ("-gdwarf-4",)), id="clang++, DWARF 4"),
]
MISSPELLED = [
    pytest.param("Javathread", "struct JavaThread", id="a capital letter"),
    pytest.param("struct JavaTread", "struct JavaThread", id="with a tag"),
    pytest.param("JavaThread_", "struct JavaThread", id="a function is as near"),
    pytest.param("JavLock", "struct JavaLock", id="the end of another name"),
    pytest.param("gc::Regoin", "struct gc::Region", id="in a namespace"),
    pytest.param("cg::Region", None, id="a namespace that begins with other letters"),
    pytest.param("gc::mark", "gc::mark_t", id="without the usual end"),
    pytest.param("Heap_type::Cuase", None, id="like nothing in no class"),
    pytest.param("Heap::Casue", "enum Heap::Cause", id="in a class"),
    pytest.param("Heep::Cause", "enum Heap::Cause", id="a class around it"),
    pytest.param("gc::Nothing", None, id="like nothing in a namespace"),
    pytest.param("Xyzzyplugh", None, id="like nothing"),
]


@pytest.fixture(params=BUILDS, scope="module")
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program by each compiler."""
    compiler, options = request.param
    need_program(compiler)
    folder = tmp_path_factory.mktemp("similar")
    (folder / "source.cpp").write_text(SOURCE)
    command = [compiler, "-g", *options, "source.cpp", "-o", "program"]
    compile_in(folder, command)
    return folder / "program"


@pytest.fixture
def info(program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DebugInfo]:
    """The debug information of a program that counts as large and cannot be indexed."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(type_search, "_MIN_LARGE", 0)
    monkeypatch.setattr(index, "build", None)
    with ElfFile(program) as elf, DebugInfo.of(elf) as found:
        yield found


@pytest.mark.parametrize(("name", "nearest"), MISSPELLED)
def test_the_message_names_what_was_meant(info: DebugInfo, name: str, nearest: str | None) -> None:
    with pytest.raises(BtfError) as caught:
        info.type_id(name)
    hint = "" if nearest is None else f"; nearest is {nearest}"
    assert str(caught.value) == f"{info.name}: no type {name!r}{hint}"


def test_right_names_are_found_after_wrong_ones(info: DebugInfo) -> None:
    for name in ("struct Hep", "JavaThred", "gc::mark"):
        with pytest.raises(BtfError, match="nearest is"):
            info.type_id(name)
    sizes = [info.btf.size_of(info.type_id(one)) for one in ("Heap", "JavaThread", "gc::mark_t")]
    assert sizes == [2, 16, 8]


def test_answers_are_kept(info: DebugInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "_MIN_COST", 0)
    with pytest.raises(BtfError, match="nearest is struct gc::Region"):
        info.type_id("gc::Regoin")
    info.close()
    monkeypatch.setattr(TypeSearch, "positions", None)  # nothing is searched
    expected = pytest.raises(BtfError, match="nearest is struct gc::Region")
    with ElfFile(info.name) as elf, DebugInfo.of(elf) as later, expected:
        later.type_id("gc::Regoin")


SEVERAL_KINDS = """
struct node { int x; }; typedef struct node node; enum shade { DARK }; union shape { int x; };
node one; enum shade two; union shape three;
int main(void) { return one.x + two + three.x; }
"""


def test_one_search_looks_for_several_kinds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_program("gcc")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "source.c").write_text(SEVERAL_KINDS)
    subprocess.run(["gcc", "-g", "source.c"], cwd=tmp_path, check=True, timeout=60)
    with ElfFile(tmp_path / "a.out") as elf, DebugInfo.of(elf) as info:
        search = TypeSearch(info._files)
        kinds = (TypeKind.STRUCT, TypeKind.UNION, TypeKind.ENUM)
        found = {name: search.find_any(kinds, name) for name in ("node", "shape", "shade", "nod")}
        for name, kind in (
            ("node", TypeKind.STRUCT),
            ("shape", TypeKind.UNION),
            ("shade", TypeKind.ENUM),
        ):
            assert [one for one, position in found[name].items() if position] == [kind]
        assert found["nod"] == dict.fromkeys(kinds)
        # What one search found does not hide what it did not look for.
        assert search.find(TypeKind.TYPEDEF, "node") is not None
        assert search.find(TypeKind.UNION, "node") is None
