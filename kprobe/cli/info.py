"""``kprobe info``: show C prototypes of functions, fields of tracepoints, and types."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from kprobe.cli.lines import escaped_lines
from usdt.base.text import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kprobe.functions.prototypes import FunctionInfo

__all__ = ("info",)


@click.command("info")
@click.option(
    "--type", "types", multiple=True, metavar="NAME", help="Show this type: 'struct sk_buff'."
)
@click.option("--needed", is_flag=True, help="With --type: also show the types that it needs.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per function.")
@click.argument("words", metavar="[FUNC]...", nargs=-1)
def info(words: Sequence[str], types: Sequence[str], *, needed: bool, as_json: bool) -> None:
    """Show C prototypes of functions, from BTF, and why a function cannot be attached.

    FUNC is a name, MODULE:NAME, or a pattern with * and ?. For tracepoint:CATEGORY:EVENT,
    rawtp:EVENT and syscall:NAME, show the fields.
    """
    if not words and not types:
        raise click.UsageError("Missing argument 'FUNC...' (or --type NAME).")
    for name in types:
        sys.stdout.writelines(_type_texts(name, needed=needed))
    from kprobe.cli import points  # noqa: PLC0415 - with what is shown

    for word in filter(points.is_point, words):
        for one in points.found(word):
            lines = [one.to_json(fields=True)] if as_json else points.text(one)
            sys.stdout.writelines(f"{line}\n" for line in lines)
    functions = [word for word in words if not points.is_point(word)]
    if functions:
        _show_functions(functions, as_json=as_json)


def _type_texts(name: str, *, needed: bool) -> list[str]:
    from usdt.btf.c_dump import Definitions, definition  # noqa: PLC0415 - not for functions
    from usdt.btf.lookup import find_type  # noqa: PLC0415
    from usdt.btf.reader import Btf  # noqa: PLC0415

    btf = Btf.from_kernel()
    number = find_type(btf, name)
    if needed:
        return [escaped_lines(text) for text in Definitions(btf).needed(number)]
    return [escaped_lines(definition(btf, number))]


def _show_functions(words: Sequence[str], *, as_json: bool) -> None:
    import json  # noqa: PLC0415 - --help must not pay

    from kprobe.functions.symbols import kallsyms_loader  # noqa: PLC0415

    symbols = kallsyms_loader()  # while the rest is imported
    from kprobe.functions.prototypes import Functions  # noqa: PLC0415

    functions = Functions(symbols)
    found = list(dict.fromkeys(one for word in words for one in functions.find(word)))
    for notice in functions.notices():
        click.echo(f"Notice: {printable(notice)}", err=True)
    for one in found:
        text = json.dumps(one.to_json()) + "\n" if as_json else escaped_lines(_text(one))
        sys.stdout.write(text)


def _text(one: FunctionInfo) -> str:
    place = f" [{one.module}]" if one.module else ""
    notes = []
    if not one.btf:
        notes.append("no BTF: its arguments are unknown")
    if one.problem:
        notes.append(f"cannot be attached: {one.problem}")
    elif one.variants:
        notes.append(f"also as {', '.join(one.variants)}")
    if len(one.addresses) > 1:
        notes.append(f"{len(one.addresses)} functions have this name; a probe attaches to all")
    text = f"{one.declaration};{place and f'  /*{place} */'}\n" if one.btf else ""
    return text + "".join(f"/* {one.name}{place}: {note} */\n" for note in notes)
