"""``kprobe info``: show C prototypes of functions, fields of tracepoints, and types."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from usdt.base.text import printable_lines
from usdt.engine.cli.click_group import btf_option, colour_option, warn
from usdt.engine.cli.completion.values import complete_probes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kprobe.functions.prototypes import FunctionInfo

__all__ = ("info",)


@click.command("info")
@click.option(
    "--type", "types", multiple=True, metavar="NAME", help="Show this type: 'struct sk_buff'."
)
@click.option("--needed", is_flag=True, help="With --type: also show the types that it needs.")
@btf_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per function.")
@colour_option
@click.argument("words", metavar="[FUNC]...", nargs=-1, shell_complete=complete_probes)
def info(words: Sequence[str], types: Sequence[str], *, needed: bool, as_json: bool) -> None:
    """Show C prototypes of functions, from BTF, and why a function cannot be attached.

    FUNC is a name, MODULE:NAME, or a pattern with * and ?. For tracepoint:CATEGORY:EVENT,
    rawtp:EVENT and syscall:NAME, show the fields.
    """
    if not words and not types:
        raise click.UsageError("Missing argument 'FUNC...' (or --type NAME).")
    for name in types:
        sys.stdout.writelines(_type_texts(name, needed=needed))
    from kprobe.cli import tracepoints  # noqa: PLC0415 - --help must not pay

    for word in filter(tracepoints.is_tracepoint, words):
        for tracepoint in tracepoints.matching(word):
            tracepoint.write(fields=True, as_json=as_json)
    functions = [word for word in words if not tracepoints.is_tracepoint(word)]
    if functions:
        _show_functions(functions, as_json=as_json)


def _type_texts(name: str, *, needed: bool) -> list[str]:
    from usdt.btf.dump.c_dump import Definitions, definition  # noqa: PLC0415 - not for functions
    from usdt.btf.lookup import find_type  # noqa: PLC0415
    from usdt.btf.reader import Btf  # noqa: PLC0415
    from usdt.btf.types import Variable  # noqa: PLC0415

    btf = Btf.from_kernel()
    number = find_type(btf, name)
    found = btf.type(number)
    if needed and isinstance(found, Variable):
        texts = [*Definitions(btf).needed(found.type_id), definition(btf, number)]
        return [printable_lines(text) for text in texts]
    if needed:
        return [printable_lines(text) for text in Definitions(btf).needed(number)]
    return [printable_lines(definition(btf, number))]


def _show_functions(words: Sequence[str], *, as_json: bool) -> None:
    from kprobe.functions.symbols import kallsyms_loader  # noqa: PLC0415

    symbols = kallsyms_loader(words)  # while the rest is imported
    from kprobe.functions.prototypes import Functions  # noqa: PLC0415

    catalog = Functions(symbols)
    functions = list(dict.fromkeys(one for word in words for one in catalog.find(word)))
    for notice in catalog.notices():
        warn(f"Notice: {notice}")
    for function in functions:
        text = _json_line(function) if as_json else _text(function)
        sys.stdout.write(printable_lines(text))


def _json_line(function: FunctionInfo) -> str:
    import json  # noqa: PLC0415 - text needs none

    return json.dumps(function.to_json()) + "\n"


def _text(function: FunctionInfo) -> str:
    module = f" [{function.module}]" if function.module else ""
    notes = []
    if not function.btf:
        notes.append("no BTF: its arguments are unknown")
    if function.problem:
        notes.append(f"cannot be attached: {function.problem}")
    elif function.variants:
        notes.append(f"also as {', '.join(function.variants)}")
    number = len(function.addresses)
    if number > 1:
        notes.append(f"{number} functions have this name; a probe attaches to all")
    text = f"{function.declaration};{module and f'  /*{module} */'}\n" if function.btf else ""
    return text + "".join(f"/* {function.name}{module}: {note} */\n" for note in notes)
