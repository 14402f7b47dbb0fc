"""Random expressions of the probe language, which are C as well: gcc says what they are worth.

Each is generated once as a tree and written twice, as an item and as C. They differ in two
places, where C leaves a value undefined and the tracer does not: division is a macro that leaves
the expression when the divisor is zero, and counts of shifts are masked in C.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

__all__ = ("ARGUMENTS", "HEADER", "POINTER", "POINTER_BYTES", "Expression", "expressions")

#: Types of arg0…arg11 in C.
ARGUMENTS = (
    *("signed char", "unsigned char", "short", "unsigned short", "int", "unsigned int"),
    *("long", "unsigned long", "int", "unsigned long", "signed char", "unsigned int"),
)

#: The argument that points at so many bytes.
POINTER = 9
POINTER_BYTES = 128

# Every type that a cast of both languages can name.
_CASTS = (
    *("char", "signed char", "unsigned char", "short", "unsigned short", "int", "unsigned int"),
    *("long", "unsigned long", "long long", "unsigned long long", "uint8_t", "int16_t", "uint32_t"),
    *("int64_t", "size_t", "bool"),
)
_CONSTANTS = (
    *("0", "1", "2", "3", "7", "10", "127", "128", "255", "256", "32767", "32768", "65535"),
    *("65536", "0x7fffffff", "0x80000000", "2147483648", "0xffffffff", "4294967295", "4294967296"),
    *("0x7fffffffffffffff", "0x8000000000000000", "0xffffffffffffffff", "017", "0u", "1u", "5ul"),
    *("1l", "0xffu", "4294967295u", "'a'", "'\\n'", "'\\\\'", "0x123456789abcdef"),
)
_ARITHMETIC = ("+", "-", "*", "&", "|", "^", "+", "-", "&", "/", "%", "/", "%", "<<", ">>")
_COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
_LOGIC = ("&&", "||")

#: What the C form of an expression needs.
HEADER = r"""
#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

static jmp_buf unreadable;

/* Both sides in their common type. The least integer over -1 has no quotient in C: it wraps. */
#define DIVISION(a, b, value, of_minus_one) ({ \
    __auto_type a_ = (a); \
    __auto_type b_ = (b); \
    __typeof__(a_ + b_) left = a_, right = b_; \
    if (!right) \
        longjmp(unreadable, 1); \
    (__typeof__(left))-1 < 0 && right == (__typeof__(left))-1 ? (of_minus_one) : (value); })
#define QUOTIENT(a, b) DIVISION(a, b, left / right, 0 - left)
#define REMAINDER(a, b) DIVISION(a, b, left % right, left - left)

static void signed_(long long value) { printf("%lld", value); }
static void unsigned_(unsigned long long value) { printf("%llu", value); }
#define SHOW(e) _Generic((e), unsigned long: unsigned_, unsigned long long: unsigned_, \
                         default: signed_)(e)
"""


@dataclass(frozen=True)
class Expression:
    """One expression: as an item, and in C."""

    item: str
    c: str


def expressions(
    seed: int, number: int, depth: int, *, predicates: bool = False
) -> list[Expression]:
    """Distinct expressions; with ``predicates`` each is a comparison or && or ||, else none is."""
    source = random.Random(seed)
    made: dict[str, Expression] = {}
    while len(made) < number:
        found = _predicate(source, depth) if predicates else _value(source, depth)
        made.setdefault(found.item, found)
    return list(made.values())


def _predicate(source: random.Random, depth: int) -> Expression:
    op = source.choice((*_COMPARISONS * 2, *_LOGIC))
    return _both(op, _any(source, depth - 1), _any(source, depth - 1))


def _value(source: random.Random, depth: int) -> Expression:
    # An item that begins with a comparison would be a predicate: its value shows beneath a sum.
    found = _any(source, depth)
    zero = source.choice(("0", "0l", "0u"))
    return Expression(f"({found.item})+{zero}", f"({found.c}) + {zero}")


def _any(source: random.Random, depth: int) -> Expression:
    if depth <= 0 or source.random() < 0.08:
        return _leaf(source)
    kind = source.random()
    if kind < 0.15:
        word = source.choice(_CASTS)
        inner = _any(source, depth - 1)
        return Expression(f"({word})({inner.item})", f"({word})({inner.c})")
    if kind < 0.28:
        op = source.choice(("-", "~", "!", "+"))
        inner = _any(source, depth - 1)
        return Expression(f"{op}({inner.item})", f"{op}({inner.c})")
    op = source.choice(_ARITHMETIC) if kind < 0.75 else source.choice((*_COMPARISONS, *_LOGIC))
    return _both(op, _any(source, depth - 1), _any(source, depth - 1))


def _both(op: str, left: Expression, right: Expression) -> Expression:
    item = f"({left.item}){op}({right.item})"
    if op in ("/", "%"):
        name = "QUOTIENT" if op == "/" else "REMAINDER"
        return Expression(item, f"{name}(({left.c}), ({right.c}))")
    if op in ("<<", ">>"):
        # C leaves counts beyond the width undefined; the tracer masks them as the machine does.
        bits = f"8 * sizeof +({left.c})"
        return Expression(item, f"({left.c}) {op} (({right.c}) & ({bits} - 1))")
    return Expression(item, f"({left.c}) {op} ({right.c})")


def _leaf(source: random.Random) -> Expression:
    kind = source.random()
    if kind < 0.12:
        text = _element(source)
        return Expression(text, text)
    if kind < 0.8:
        name = f"arg{source.randrange(len(ARGUMENTS))}"
        return Expression(name, name)
    constant = source.choice(_CONSTANTS)
    return Expression(constant, constant)


def _element(source: random.Random) -> str:
    # Eight bytes are the largest element, and indices go up to 7.
    word = source.choice(_CASTS[:-1])  # no bool: C does not define one that is neither 0 nor 1
    index = source.choice((str(source.randrange(8)), f"(arg{source.randrange(8)}&7)"))
    pointer = f"({word}*)arg{POINTER}"
    forms = (f"({pointer})[{index}]", f"*({pointer}+{index})", f"*({word}*)(arg{POINTER}+{index})")
    return source.choice((*forms, f"*(({word}*)(arg{POINTER}+64)-{index})"))
