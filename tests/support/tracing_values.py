"""What a fixture printed against what was traced: values, order, and what no tracer can read.

What is unreadable is not taken from the tool but from readelf and nm: an operand of a known kind
must be shown as unreadable, with the reason that belongs to it, and no other operand may be.
"""

from __future__ import annotations

import functools
import math
import os
import re
import struct
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from skips import need_program

from usdt.bpf.features import have_sleepable_uprobes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

__all__ = ("compare", "differences", "traced_as", "unreadable_operands", "words_for")

_NOTE = re.compile(
    r"Provider: (?P<provider>.*)\n\s*Name: (?P<name>.*)\n\s*Location: .*\n"
    r"\s*Arguments: (?P<args>.*)$",
    re.MULTILINE,
)
# A register by itself: x86 and s390x have a % before it, mips and loongarch a $; on ppc it is a
# bare number, which is a constant elsewhere.
_REGISTER = re.compile(r"-?(?P<size>\d+)f?@([%$]\w+|[a-z]\w*|(?P<number>\d+))$")
_OPERAND = re.compile(r"(?:[^\s\[]|\[[^\]]*\])+")  # arm's have blanks in their brackets
_SYMBOL = re.compile(r"(?<![\w.$%@])[A-Za-z_.][\w.$]*")
_RELOCATED = re.compile(
    r":\w+:(?P<arm>[^\]]+)|%\w+\((?P<risc>[^)]+)\)|^#?(?P<bare>[A-Za-z_.][^()]*)$"
)

# Reasons, each as the tool's message has it, and the operands they stand for.
_THREAD_LOCAL = "thread-local"
_ASSEMBLER = "local label of the assembler"
_VECTOR = "is not saved where a program can read it"
_HALF = "holds a part of its"
_ROUNDED = "a rounded number"
_STRIPPED = "is not in the symbol tables"
_AMBIGUOUS = "ambiguous"
_BY_TEXT = (
    (re.compile(r"%[fg]s:|@n?tpoff|@indntpoff|%tprel_|:tprel_|@tprel"), _THREAD_LOCAL),
    (re.compile(r"(?<![\w.])\.L(C|CPI|ANCHOR)?\d"), _ASSEMBLER),  # gcc's, clang's
    (re.compile(r"%[xyz]mm"), _VECTOR),
    (re.compile(r"8f@#-?\d\.\d{10,}e"), _ROUNDED),  # gcc's, for arm
)


def _tool(name: str, *words: str) -> str:
    done = subprocess.run(
        [need_program(name, "binutils"), *words], capture_output=True, check=False, timeout=20
    )
    return done.stdout.decode(errors="surrogateescape")


@functools.cache
def _symbols(path: Path) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    # The dynamic symbols count only where there are no others.
    for options in ((), ("-D",)):
        for line in _tool("nm", *options, str(path)).splitlines():
            address, _, name = line.rpartition(" ")
            if address[:1].isalnum():
                found.setdefault(name.partition("@")[0], set()).add(address.split()[0])
        if found:
            break
    return found


def _why(operand: str, machine: str, bits: int, path: Path) -> str | None:
    for pattern, reason in _BY_TEXT:
        if pattern.search(operand):
            return reason
    x86 = "86" in machine or "X86" in machine
    if re.search(r"@[i$]-?\d+$" if x86 else r"@i-?\d+$", operand):  # a constant; i: of PowerPC
        return None
    match = _REGISTER.match(operand)
    if match and ("@%" in operand if x86 else not match["number"] or "PowerPC" in machine):
        pair = int(match["size"]) * 8 == 2 * bits and "f@" not in operand
        if pair and sys.byteorder == "little":
            return None  # its low half
        return _HALF if int(match["size"]) * 8 > bits else None
    place = re.sub(r"^-?\d*f?@", "", operand)
    if x86:
        place = re.sub(r"%\w+|@(GOT|PLT)\w*", "", place)
    else:  # elsewhere registers look like symbols
        relocated = _RELOCATED.search(place)
        place = next(filter(None, relocated.groups()), "") if relocated else ""
    for symbol in _SYMBOL.findall(place):
        addresses = _symbols(path).get(symbol, set())
        if len(addresses) != 1:
            return _AMBIGUOUS if addresses else _STRIPPED
    return None


@functools.cache
def unreadable_operands(*paths: Path) -> dict[tuple[str, int], set[str | None]]:
    """(probe, index of the argument) → why it cannot be read, None for sites where it can."""
    found: dict[tuple[str, int], set[str | None]] = {}
    for path in paths:
        text = _tool("readelf", "--file-header", "--notes", str(path))
        header, _, notes = text.partition("Displaying notes")
        bits = 32 if "ELF32" in header else 64
        machine = header.partition("Machine:")[2].partition("\n")[0]
        for note in _NOTE.finditer(notes):
            for index, operand in enumerate(_OPERAND.findall(note["args"])):
                why = _why(operand, machine, bits, path)
                key = f"{note['provider']}:{note['name']}", index
                found.setdefault(key, set()).add(why)
    return found


def words_for(hits: Iterable[dict[str, Any]]) -> list[str]:
    """Probes with items that show all that a fixture prints: str(argN) beside argN for strings."""
    strings: dict[str, list[bool]] = {}
    for hit in hits:
        is_text = [isinstance(value, dict) and "str" in value for value in hit["args"]]
        known = strings.setdefault(hit["probe"], is_text)
        strings[hit["probe"]] = [a or b for a, b in zip(known, is_text, strict=True)]
    words = []
    for probe, texts in strings.items():
        items = [f"arg{i},str(arg{i})" if text else f"arg{i}" for i, text in enumerate(texts)]
        words.append(f"{probe}({','.join(items)})" if any(texts) else probe)
    return words


def traced_as(shown: Any, traced: Any) -> bool:
    """Whether a traced value is what the program printed; both as JSON has them."""
    if shown is None:  # what no tracer can know
        return True
    if isinstance(traced, dict):
        return False
    if isinstance(shown, dict):
        if "hex" not in shown:
            return type(traced) is int and traced == shown["ptr"]
        # The size of 1, 2, 4 and 8 bytes says "integer" to a tracer, whatever the type was.
        data = bytes.fromhex(shown["hex"])
        return traced == (
            int.from_bytes(data, sys.byteorder) if type(traced) is int else shown["hex"]
        )
    if isinstance(shown, float):
        return _same_float(shown, _extended(traced) if _is_extended(traced) else float(traced))
    return type(traced) is int and traced == shown


def _same_float(one: float, other: float) -> bool:
    # Bit for bit, but that one NaN is as good as another.
    both_nan = math.isnan(one) and math.isnan(other)
    return both_nan or struct.pack("d", one) == struct.pack("d", other)


def _is_extended(traced: Any) -> bool:
    return isinstance(traced, str) and len(traced) in (24, 32)


def _extended(traced: str) -> float:
    # long double: no tracer's number format has it, so its bytes are shown.
    data = bytes.fromhex(traced)
    machine = os.uname().machine
    if machine.startswith("ppc"):  # of IBM: the sum of two doubles
        return math.fsum(struct.unpack("=dd", data))
    if machine == "x86_64" or machine.endswith("86"):  # of the x87
        mantissa, sign_exponent = struct.unpack("<QH", data[:10])
        value = math.ldexp(mantissa, (sign_exponent & 0x7FFF) - 16383 - 63)
    else:  # binary128 of IEEE 754
        number = int.from_bytes(data, sys.byteorder)
        sign_exponent, fraction = number >> 112, number & (1 << 112) - 1
        value = math.ldexp(fraction | 1 << 112, (sign_exponent & 0x7FFF) - 16383 - 112)
    return -value if sign_exponent & 0x8000 else value


def differences(
    shown: dict[str, Any],
    traced: dict[str, Any],
    unreadable: dict[tuple[str, int], set[str | None]],
) -> Iterable[str]:
    """Say what differs between one hit as printed and the same hit as traced."""
    args = dict(traced["args"])
    for index, whole in enumerate(shown["args"]):
        found = args.pop(f"arg{index}", "(absent)")
        part = traced.get("memory", {}).get(f"arg{index}", {})
        halved = isinstance(found, int) and "bytes" in part
        value = _low_part(whole, part["bytes"]) if halved else whole
        where = f"{shown['probe']} arg{index}: printed {value!r}, traced {found!r}"
        reasons = unreadable.get((shown["probe"], index), {None})
        if isinstance(found, dict):
            if value is not None and not _is_one_of(found["error"], reasons):
                yield f"{where}, reasons {reasons}"
        elif None not in reasons:
            yield f"{where}, which cannot be read: {reasons}"
        elif not traced_as(value, found):
            yield where
        text = args.pop(f"str(arg{index})", None)
        if text is not None and isinstance(value, dict) and None in reasons:
            yield from _text_differences(where, value, text)
    if args:
        yield f"{shown['probe']}: more than was printed: {args}"


def _low_part(value: Any, size: int) -> Any:
    # The low part of what was printed as a number or as bytes.
    if isinstance(value, dict):
        return int.from_bytes(bytes.fromhex(value["hex"])[:size], "little")
    return value if value is None else value & (1 << 8 * size) - 1


def _is_one_of(message: str, reasons: Iterable[str | None]) -> bool:
    return any(reason is not None and reason in message for reason in reasons)


def _text_differences(where: str, value: dict[str, Any], text: Any) -> Iterable[str]:
    if value.get("str") is None:
        if not isinstance(text, dict):
            yield f"{where}: str() of what cannot be read is {text!r}"
    elif text == {"error": "memory not readable"} and not have_sleepable_uprobes():
        pass  # a page that nobody has read cannot be faulted in
    elif text != value["str"]:
        yield f"{where}: str() is {text!r}"


def compare(
    shown: Sequence[dict[str, Any]],
    traced: Sequence[dict[str, Any]],
    unreadable: dict[tuple[str, int], set[str | None]],
) -> list[str]:
    """Differences between the hits of one thread, in order."""
    names = [hit["probe"] for hit in shown], [hit["probe"] for hit in traced]
    if names[0] != names[1]:
        return [f"order: printed {names[0][:50]}, traced {names[1][:50]}"]
    pairs = zip(shown, traced, strict=True)
    return [text for one, other in pairs for text in differences(one, other, unreadable)]
