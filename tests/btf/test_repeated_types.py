"""Types that contain one another many times: each is looked at once."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest
from skips import need_program, requires_root
from tracing_tools import run_usdt

from usdt.arch.abi.classify import abi_type_of
from usdt.arch.abi.rust_layout import scalar_pair_of
from usdt.base.errors import BtfError
from usdt.btf.format import Kind
from usdt.btf.reader import Btf
from usdt.btf.writer import BtfWriter
from usdt.engine.compiler.ir import U64, Number, PointerExpr
from usdt.engine.compiler.resolve.btf_types import BtfTypes
from usdt.engine.language.tree import Member, Name

if TYPE_CHECKING:
    from pathlib import Path

    from usdt.btf.types import Type

_LEVELS = 12
_REPEATED = 60  # 60^12 members


class CountingBtf(Btf):
    """BTF that ends a test in which types are looked up again and again."""

    looked_up = 0

    def resolve(self, type_id: int) -> Type:
        self.looked_up += 1
        assert self.looked_up < 100_000
        return super().resolve(type_id)


def nested(name: str) -> tuple[CountingBtf, int]:
    made = BtfWriter()
    number = made.integer("int", 4, 1)
    for _ in range(_LEVELS):
        number = made.composite(Kind.UNION, "", 4, [(name, number, 0, 0)] * _REPEATED)
    return CountingBtf(made.data()), number


def test_a_member_is_searched_once_in_each_anonymous_type() -> None:
    btf, number = nested("")
    types = BtfTypes(lambda: btf)
    pointer = PointerExpr(Number(0, U64), U64, type_id=number)
    with pytest.raises(BtfError, match="has no member 'missing'"):
        types.member(Member(Name("p", 0, 1), "missing", True, 0, 1), pointer)


def test_a_deep_type_does_not_hide_members_of_a_shallow_one() -> None:
    made = BtfWriter()
    number = made.integer("int", 4, 1)
    number = made.composite(Kind.STRUCT, "", 4, [("wanted", number, 0, 0)])
    inner = made.composite(Kind.STRUCT, "", 8, [("", number, 32, 0)])
    deep = inner
    for _ in range(15):
        deep = made.composite(Kind.STRUCT, "", 8, [("", deep, 0, 0)])
    outer = made.composite(Kind.STRUCT, "s", 16, [("", deep, 0, 0), ("", inner, 64, 0)])
    btf = Btf(made.data())
    found = BtfTypes(lambda: btf).member(
        Member(Name("p", 0, 1), "wanted", True, 0, 1),
        PointerExpr(Number(0, U64), U64, type_id=outer),
    )
    assert found is not None
    assert getattr(found, "address", None) == Number(12, U64)


def test_what_a_convention_passes_is_found_once_in_each_type() -> None:
    btf, number = nested("a")
    assert [(one.start, one.size) for one in abi_type_of(btf, number).fields] == [(0, 4)]
    assert [(one.start, one.size) for one in scalar_pair_of(btf, number) or ()] == [(0, 4)]


def test_members_behind_the_end_are_no_fields() -> None:
    made = BtfWriter()
    number = made.integer("int", 4, 1)
    for level in range(20):  # 2^20 different offsets
        rows = [("a", number, 0, 0), ("b", number, 8 << (level + 2), 0)]
        number = made.composite(Kind.STRUCT, "", 64, rows)
    fields = abi_type_of(CountingBtf(made.data()), number).fields
    assert [one.start for one in fields] == [*range(0, 64, 4)]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program whose types contain one another 4^30 times."""
    text = "union u0 { int first; char pad[100]; };\n"
    for level in range(1, 30):
        members = ", ".join(f"m{k}" for k in range(4))
        text += f"union u{level} {{ union u{level - 1} {members}; }};\n"
    text += "__attribute__((noipa)) int take(union u29 *p) { return p != 0; }\n"
    text += "int main(void) { return take(0); }\n"
    folder = tmp_path_factory.mktemp("repeated")
    (folder / "program.c").write_text(text)
    words = [need_program("gcc"), "-g", "-w"]
    subprocess.run([*words, "-o", folder / "program", folder / "program.c"], check=True)
    return folder / "program"


def test_debug_information_with_such_types_is_read(program: Path) -> None:
    done = run_usdt("info", f"uprobe:{program}:take")
    assert done.returncode == 0, done.stderr
    assert "take(union u29 *p)" in done.stdout


@requires_root
def test_a_value_of_such_a_type_is_its_bytes(program: Path) -> None:
    done = run_usdt("trace", "-c", program, f"uprobe:{program}:take(*p)")
    assert done.returncode == 0, done.stderr
    assert "*p=?(memory not readable)" in done.stdout
