"""Argument specs of probes: split the string, and parse each argument by its CPU's grammar.

``-4@%eax 8@-24(%rbp)`` is two arguments: a size (negative: signed; ``f`` after it: floating
point), ``@``, and an operand in the assembler's syntax. Notes come from untrusted
files, so no text raises and no argument is dropped. An argument that cannot be parsed is an operand
of kind "unknown", so that the others keep their positions.
"""

from __future__ import annotations

import functools
import re

from usdt.arch.operands import arch_of
from usdt.arch.operands.grammar import WIDEST_WORD, WORD, ArgSpec, NumberType, Operand, excerpt

__all__ = ("MAX_ARGUMENTS", "MAX_LENGTH", "Operand", "parse_arguments", "split_arguments")

MAX_LENGTH = 65536  # characters of an argument string; real ones have a few hundred
MAX_ARGUMENTS = 256  # sdt.h has macros for 12
MAX_CACHED = 2048  # longer strings are not cached: a damaged file must not fill the cache
MAX_BLANKS = 16  # blanks inside one pair of brackets: "[r2, r0, lsl #2]" has 3
MAX_SIZE_DIGITS = 9

BRACKETS = frozenset("([,")  # a blank inside an operand follows one of these
# Blanks that separate nothing: "-4 @ -20 ( %rbp )" is "-4@-20(%rbp)". A size ends at its "@"; a
# bracket opens after a number or a symbol that follows an "@". Few strings have any: these are
# compiled when they are first used.
AROUND_AT = r"(?<![^ ])(-?[0-9]{1,9}f?)(?: +@ *|@ +)(?=[^ ])(?!-?[0-9]{1,9}f? *@)"
BEFORE_BRACKET = r"(@[^ @(\[%$]+) +(?=\()"
INSIDE_BRACKETS = r"(?<=[(\[]) +|(?<! ) +(?=[)\]])"
BLANKS = dict.fromkeys(map(ord, "\t\n\v\f\r"), " ")


def split_arguments(args: str, *, commas: bool = False) -> tuple[str, ...]:
    """Split an argument string at the blanks outside of brackets and parentheses.

    An empty string, or one that begins with ":", has no arguments. Text after MAX_ARGUMENTS - 1
    arguments, or a string longer than MAX_LENGTH, is not split. With ``commas``, a blank after a
    comma does not separate either: LoongArch addresses may have no brackets.
    """
    if len(args) > MAX_LENGTH:
        return (args,)
    if args.startswith(":"):
        return ()
    words = without_blanks(args.translate(BLANKS)).split(" ")
    pieces: list[str] = []
    position = 0
    while position < len(words):
        taken = words_of_argument(words, position, commas=commas)
        piece = " ".join(words[position : position + taken])
        if piece:
            pieces.append(piece)
        position += taken
        if len(pieces) == MAX_ARGUMENTS - 1:
            break
    rest = " ".join(words[position:]).strip(" ")
    return (*pieces, rest) if rest else tuple(pieces)


def without_blanks(args: str) -> str:
    """Remove the blanks around ``@`` and inside of brackets, which libbpf allows."""
    if " @" in args or "@ " in args:
        args = re.sub(AROUND_AT, r"\1@", args)
    if " (" in args:
        args = re.sub(BEFORE_BRACKET, r"\1", args)
    if "( " in args or " )" in args or "[ " in args or " ]" in args:
        args = re.sub(INSIDE_BRACKETS, "", args)
    return args


def words_of_argument(words: list[str], position: int, *, commas: bool = False) -> int:
    """Return the number of words in the argument at ``position``: more if a bracket is open."""
    depth = 0
    for taken, word in enumerate(words[position : position + MAX_BLANKS], start=1):
        depth += word.count("(") + word.count("[") - word.count(")") - word.count("]")
        if depth <= 0 and not (commas and word.endswith(",")):
            return taken
    return 1  # never closed: do not swallow the arguments after it


def parse_arguments(args: str, machine: str) -> tuple[Operand, ...]:
    """Parse an argument string; one operand per argument, in order. Never raises.

    Args:
        args: the note's third string.
        machine: the CPU, as ElfFile.machine_name gives it.
    """
    return (parse_cached if len(args) <= MAX_CACHED else parse_all)(args, machine)


def parse_all(args: str, machine: str) -> tuple[Operand, ...]:
    """Parse as :func:`parse_arguments`, without its cache."""
    if len(args) > MAX_LENGTH:
        spec = ArgSpec(args, args, WORD.get(machine, WIDEST_WORD), "unsigned", machine)
        reason = f"the argument string has {len(args)} characters (at most {MAX_LENGTH})"
        return (spec.unknown(reason),)
    commas = machine.startswith("loongarch")
    pieces = split_arguments(args, commas=commas)
    operands = [parse_argument(text, machine) for text in pieces]
    if len(pieces) == MAX_ARGUMENTS:
        words = pieces[-1].split(" ")
        if words_of_argument(words, 0, commas=commas) < len(words):
            spec = ArgSpec(pieces[-1], "", WORD.get(machine, WIDEST_WORD), "unsigned", machine)
            operands[-1] = spec.unknown(f"more than {MAX_ARGUMENTS} arguments; the rest is ignored")
    return tuple(operands)


parse_cached = functools.lru_cache(maxsize=4096)(parse_all)


def parse_argument(text: str, machine: str) -> Operand:
    """Parse one argument: split off its size, and pass the rest to its CPU's grammar."""
    head, at, body = text.partition("@")
    size = parse_size(head) if at else None
    if size is None:  # no size: the @ of "40+sv@GOTOFF(%ebx)" belongs to the operand
        spec = ArgSpec(text, text, WORD.get(machine, WIDEST_WORD), "unsigned", machine)
    else:
        spec = ArgSpec(text, body, size[0], size[1], machine)
    if spec.size == 0:
        return ArgSpec(text, body, 1, spec.type, machine).unknown(
            f"{excerpt(text)} has a size of 0 or of more than {MAX_SIZE_DIGITS} digits"
        )
    if not spec.body or (" " in spec.body and not BRACKETS.intersection(spec.body)):
        return spec.unknown(f"{excerpt(text)} is not one operand")
    arch = arch_of(machine)
    if arch is None:
        return spec.unknown(f"operands of {machine} are not supported yet")
    return arch.parse_operand(spec)


def parse_size(head: str) -> tuple[int, NumberType] | None:
    """Parse ``[-]digits[f]`` into bytes (0 if too long) and type; None if it is not a size."""
    digits = head.removeprefix("-").removesuffix("f")
    if not (digits.isascii() and digits.isdigit()):
        return None
    size = int(digits) if len(digits) <= MAX_SIZE_DIGITS else 0
    if head.endswith("f"):
        return size, "float"
    return size, "signed" if head.startswith("-") else "unsigned"
