"""Copies and parts that compilers make of functions, and names of one letter."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from symbol_programs import compiled

from usdt.base.errors import ProbeNotFound
from usdt.uprobes.functions import FunctionFile

if TYPE_CHECKING:
    from pathlib import Path

# As gcc -O2 names them, whatever this compiler would make.
_COPIES = r"""
#define COPY(name) extern "C" __attribute__((noinline, used)) int name(int n)
COPY(sum_isra) __asm__("sum.isra.0");
COPY(sum_isra) { return n + 1; }
COPY(sum_part) __asm__("sum.part.0");
COPY(sum_part) { return n + 2; }
COPY(parted_cold) __asm__("_Z6partedi.cold");
COPY(parted_cold) { return n + 3; }
__attribute__((noinline)) int parted(int n) { return n + 4; }
__attribute__((noinline)) int f(int n) { return n + 5; }
namespace g { __attribute__((noinline)) long f(long n) { return n + 6; } }
int main() { return sum_isra(1) + sum_part(2) + parted_cold(3) + parted(4) + f(5) + g::f(6) == 0; }
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("copies"), _COPIES, "-O1", "-xc++", name="copies")


@pytest.mark.parametrize(
    ("pattern", "symbols"),
    [
        pytest.param("sum.isra.0", ["sum.isra.0"], id="a copy by its own name"),
        pytest.param("sum.*", ["sum.isra.0"], id="a pattern takes copies, but no parts"),
        pytest.param("parted", ["_Z6partedi"], id="a function without its cold part"),
        pytest.param("parted*", ["_Z6partedi"], id="the same by a pattern"),
        pytest.param("f", ["_Z1fi"], id="a name of one letter"),
        pytest.param("g::f", ["_ZN1g1fEl"], id="names of one letter"),
    ],
)
def test_functions_and_their_copies(program: Path, pattern: str, symbols: list[str]) -> None:
    with FunctionFile(str(program)) as file:
        assert [one.symbol for one in file.find(pattern)] == symbols


def test_a_function_of_which_there_are_only_copies_is_said(program: Path) -> None:
    with FunctionFile(str(program)) as file, pytest.raises(ProbeNotFound) as caught:
        file.find("sum")
    assert "no function sum: the compiler split it into sum.isra.0, sum.part.0" in str(caught.value)
