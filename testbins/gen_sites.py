#!/usr/bin/env python3
"""Write a C fixture with many distinct probe sites to standard output.

    gen_sites.py [--provider NAME] [--sites 10000] [--names 100] [--per-function 100]

Site I belongs to probe ``PROVIDER:pJ``, J = I % names, and passes its own number and a value that
differs from site to site in where it is kept, so that argument strings differ too.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

HEAD = """\
/* Written by gen_sites.py: {sites} sites of {names} probes. */
#include <sys/sdt.h>

#include "fixture.h"

static struct {{
    int number[{sites}];
    long far[64];
}} table;

"""

# The same value is computed by expected() for site I: (expression, what it is).
SHAPES = (
    "value + {site}",  # a register
    "table.number[{site}]",  # a symbol and its own displacement
    "pointer[{element}]",  # a base and a displacement
    "-{site}",  # a constant
)

TAIL = """\
static int expected(int site, int value, const long *pointer)
{{
    switch (site % 4) {{
    case 0:
        return value + site;
    case 1:
        return table.number[site];
    case 2:
        return (int)pointer[site / 4 % 64];
    default:
        return -site;
    }}
}}

static void report(int first, int last, int value, const long *pointer)
{{
    static const char *const names[] = {{{quoted}}};
    for (int site = first; site < last; site++)
        HIT(names[site % {names}], site, expected(site, value, pointer));
}}

void fire(unsigned long round)
{{
    int value = -(int)round;
    for (int i = 0; i < {sites}; i++)
        table.number[i] = -i - (int)round;
    for (int i = 0; i < 64; i++)
        table.far[i] = -i * 1000L - (long)round;
    FX_BARRIER();
{calls}}}
"""


def function(number: int, first: int, last: int, names: int, provider: str) -> Iterator[str]:
    """Yield the lines of one function with sites first to last - 1."""
    yield f"static FX_NOINLINE void sites{number}(int value, const long *pointer)\n{{\n"
    for site in range(first, last):
        shape = SHAPES[site % 4].format(site=site, element=site // 4 % 64)
        cast = "(int)" if site % 4 == 2 else ""
        yield f"    STAP_PROBE2({provider}, p{site % names}, {site}, {cast}{shape});\n"
    yield "}\n\n"


def source(provider: str, sites: int, names: int, per_function: int) -> Iterator[str]:
    """Yield the whole C file in pieces."""
    yield HEAD.format(sites=sites, names=names)
    calls = []
    for number, first in enumerate(range(0, sites, per_function)):
        last = min(first + per_function, sites)
        yield from function(number, first, last, names, provider)
        calls.append(
            f"    sites{number}(value, table.far);\n"
            f"    report({first}, {last}, value, table.far);\n"
        )
    quoted = ", ".join(f'"{provider}:p{name}"' for name in range(names))
    yield TAIL.format(sites=sites, names=names, quoted=quoted, calls="".join(calls))


def main() -> None:
    """Parse the command line and write the file."""
    parser = argparse.ArgumentParser(description="Write a C fixture with many probe sites.")
    parser.add_argument("--provider", default="many10k")
    parser.add_argument("--sites", type=int, default=10_000)
    parser.add_argument("--names", type=int, default=100)
    parser.add_argument("--per-function", type=int, default=100)
    given = parser.parse_args()
    if min(given.sites, given.names, given.per_function) < 1:
        parser.error("--sites, --names and --per-function must be at least 1")
    names = min(given.names, given.sites)
    sys.stdout.writelines(source(given.provider, given.sites, names, given.per_function))


if __name__ == "__main__":
    main()
