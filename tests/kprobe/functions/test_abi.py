"""Which words hold a function's arguments, by CPU; and what is made of a prototype."""

from __future__ import annotations

import pytest

from kprobe.functions.abi import AbiType, ArgumentWords, call_words, fentry_words, has_sret
from kprobe.functions.blacklist import Blacklist

_INT, _LONG = AbiType(4), AbiType(8)
_PAIR = AbiType(16, 8, aggregate=True)
_SMALL = AbiType(3, 1, aggregate=True)
_LARGE = AbiType(24, 8, aggregate=True)
_WIDE = AbiType(16, 16)


def _where(*words: int | tuple[int, ...] | str) -> list[ArgumentWords]:
    # 3: a word; (3, 4): two; "3": the address of what is meant
    made = []
    for one in words:
        if isinstance(one, str):
            made.append(ArgumentWords((int(one),), by_reference=True))
        else:
            made.append(ArgumentWords((one,) if isinstance(one, int) else one))
    return made


@pytest.mark.parametrize(
    ("machine", "shapes", "expected"),
    [
        pytest.param(
            *("x86_64", [_INT] * 8, _where(0, 1, 2, 3, 4, 5, 6, 7)),
            id="x86-64: the seventh is on the stack",
        ),
        pytest.param(
            *("x86_64", [_LONG, _PAIR, _INT], _where(0, (1, 2), 3)),
            id="x86-64: a structure of two words in two registers",
        ),
        pytest.param(
            *("x86_64", [*[_LONG] * 5, _PAIR, _INT], _where(0, 1, 2, 3, 4, (6, 7), 5)),
            id="x86-64: one that does not fit is on the stack, and the next takes the register",
        ),
        pytest.param(
            *("x86_64", [_LARGE, _INT], _where((6, 7, 8), 0)),
            id="x86-64: a large one is always on the stack",
        ),
        pytest.param(
            *("x86_64", [_SMALL, _INT], _where(0, 1)), id="x86-64: three bytes in a register"
        ),
        pytest.param(
            *("x86_64", [AbiType(0, 1, aggregate=True), _INT], _where((), 0)),
            id="x86-64: an empty one takes nothing",
        ),
        pytest.param(
            *("aarch64", [*[_LONG] * 7, _PAIR, _INT], _where(*range(7), (8, 9), 10)),
            id="arm64: one that does not fit ends the registers",
        ),
        pytest.param(
            *("aarch64", [_INT, _WIDE, _INT], _where(0, (2, 3), 4)),
            id="arm64: 16 bytes of alignment begin at an even register",
        ),
        pytest.param(
            *("aarch64", [_LARGE, _INT], _where("0", 1)), id="arm64: a large one by reference"
        ),
        pytest.param(
            *("riscv64", [*[_LONG] * 7, _PAIR, _INT], _where(*range(7), (7, 8), 9)),
            id="RISC-V: half in the last register, half on the stack",
        ),
        pytest.param(
            *("s390x", [_SMALL, AbiType(8, 8, aggregate=True), _PAIR], _where("0", 1, "2")),
            id="s390x: sizes that are powers of two in registers, others by reference",
        ),
        pytest.param(
            *("s390x", [_INT] * 6, _where(0, 1, 2, 3, 4, 5)),
            id="s390x: the sixth is on the stack",
        ),
        pytest.param(
            *("ppc64le", [_LARGE, _INT], _where((0, 1, 2), 3)),
            id="Power: structures of any size in registers",
        ),
    ],
)
def test_words_of_a_call(
    machine: str, shapes: list[AbiType], expected: list[ArgumentWords]
) -> None:
    assert call_words(shapes, machine) == expected


def test_what_is_not_known_ends_what_is() -> None:
    assert call_words([_INT, AbiType(8, 8), _INT], "arm") == [ArgumentWords((0,)), None, None]


def test_words_of_fentry_follow_one_another() -> None:
    assert fentry_words([_INT, _PAIR, _SMALL, _LONG]) == _where(0, (1, 2), 3, 4)


def test_a_result_in_memory_takes_the_first_word() -> None:
    assert has_sret(_LARGE, "x86_64")
    assert not has_sret(_PAIR, "x86_64")
    assert not has_sret(_LARGE, "aarch64")
    assert has_sret(_PAIR, "s390x")


def test_the_blacklist_has_ranges_within_ranges() -> None:
    text = "0x0000000000001000-0x0000000000002000\touter\n"
    text += "0x0000000000001010-0x0000000000001020\tinner\nnonsense\n"
    text += "0x0000000000003000-0x0000000000003001\tlast\n"
    found = Blacklist(text)
    assert len(found) == 3
    assert found.names("inner")
    assert not found.names("inne")
    inside = [address for address in (0xFFF, 0x1000, 0x1030, 0x1FFF, 0x3000) if found.has(address)]
    assert inside == [0x1000, 0x1030, 0x1FFF, 0x3000]
    assert not found.has(0x2000)
    assert not found.has(0x3001)


def test_a_blacklist_without_addresses_knows_names() -> None:
    found = Blacklist("0x0000000000000000-0x0000000000000000\thidden\n")
    assert found.names("hidden")
    assert not found.has(0)
