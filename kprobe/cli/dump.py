"""``kprobe dump``: typed data as text."""

from __future__ import annotations

import binascii
import json
import sys
from typing import TYPE_CHECKING, Any

import click

from kprobe.cli.lines import escaped_lines
from usdt.base.errors import BtfError, TracingError

if TYPE_CHECKING:
    from kprobe.datatypes import Types
    from usdt.btf.values.options import Rendered

__all__ = ("dump",)

_FLAGS = ("compact", "skip_names", "emit_zeroes", "emit_strings")
_KNOWN = {"type", "data", "indent", "indent_level", "compat", *_FLAGS}
_MOST_LEVELS = 1000


@click.command("dump")
@click.option(
    "--btf", "path", metavar="FILE", help="Whose types; the running kernel's if left out."
)
@click.option("--base", metavar="FILE", help="The BTF that FILE continues (a module's kernel).")
@click.option("--hex", "data", metavar="BYTES", help="The data, as hexadecimal digits.")
@click.option("--compact", is_flag=True, help="One line.")
@click.option("--skip-names", is_flag=True, help="Neither names nor types.")
@click.option("--emit-zeroes", is_flag=True, help="Show what is zero, too.")
@click.option("--emit-strings", is_flag=True, help="Arrays of characters as strings.")
@click.option("--indent", type=click.IntRange(0, 64), help="Spaces per step instead of a tab.")
@click.option("--indent-level", type=click.IntRange(0, _MOST_LEVELS), default=0, help="Steps.")
@click.option("--compat", type=click.Choice(["libbpf"]), help="libbpf's text, with its bugs.")
@click.option("--concise", is_flag=True, help="One short line, without types.")
@click.option("--json", "as_json", is_flag=True, help="The value as JSON.")
@click.option("--batch", is_flag=True, help="JSON lines from stdin, JSON lines to stdout.")
@click.argument("name", metavar="[TYPE]", required=False)
def dump(
    name: str | None, path: str | None, base: str | None, *, data: str | None, **chosen: Any
) -> None:
    """Show data of a type as text: 'struct sk_buff', u32, or a type's ID.

    --batch reads objects such as {"type": "struct x", "data": "0a00…", "compact": true} and answers
    each with {"text": …, "size": N} or {"text": …, "error": "E2BIG"}.
    """
    batch, concise, as_json = chosen.pop("batch"), chosen.pop("concise"), chosen.pop("as_json")
    if batch and (name is not None or data is not None):
        raise click.UsageError("--batch reads TYPE and data from stdin.")
    if not batch and (name is None or data is None):
        raise click.UsageError("Missing TYPE or --hex BYTES (or --batch).")
    from kprobe.datatypes import types  # noqa: PLC0415 - --help must not pay

    known = types(path, base=base)
    if name is None or data is None:
        _batch(known, _defaults(chosen))
        return
    found, raw = known[name], _bytes(data)
    if as_json:
        sys.stdout.write(json.dumps(found.value(raw)) + "\n")
        return
    if concise:
        sys.stdout.write(escaped_lines(found.line(raw)) + "\n")
        return
    _print(_rendered(known, {"type": name, "data": data} | _defaults(chosen)), name, len(raw))


def _print(shown: Rendered, name: str, length: int) -> None:
    sys.stdout.write(escaped_lines(shown.text) + "\n")
    if shown.error == "E2BIG":
        raise BtfError(f"{name}: {length} bytes are too few (E2BIG)")
    if shown.error:
        raise BtfError(f"{name}: no value of this type can be shown ({shown.error})")


def _defaults(chosen: dict[str, Any]) -> dict[str, Any]:
    found = {key: True for key in _FLAGS if chosen[key]}
    if chosen["indent"] is not None:
        found["indent"] = " " * chosen["indent"]
    if chosen["compat"]:
        found["compat"] = chosen["compat"]
    return found | {"indent_level": chosen["indent_level"]}


def _bytes(text: str) -> bytes:
    digits = "".join(text.split()).removeprefix("0x")
    try:
        return binascii.unhexlify(digits)
    except ValueError as err:
        raise BtfError(f"{text[:40]!r} is not bytes in hexadecimal: {err}") from err


def _batch(known: Types, defaults: dict[str, Any]) -> None:
    sys.stdout.flush()
    for line in sys.stdin.buffer:
        if line.strip():
            sys.stdout.write(json.dumps(_answer(known, line, defaults)) + "\n")
            sys.stdout.flush()


def _answer(known: Types, line: bytes, defaults: dict[str, Any]) -> dict[str, Any]:
    # One wrong line must not keep the others from their answers.
    try:
        request = json.loads(line)
        if not isinstance(request, dict):
            return {"text": "", "error": "EINVAL", "message": "a JSON object is expected"}
        shown = _rendered(known, defaults | request)
    except (TracingError, TypeError, ValueError, RecursionError) as err:
        return {"text": "", "error": "EINVAL", "message": str(err)}
    if shown.error:
        return {"text": shown.text, "error": shown.error}
    return {"text": shown.text, "size": shown.size}


def _rendered(known: Types, request: dict[str, Any]) -> Rendered:
    unknown = sorted(set(request) - _KNOWN)
    if unknown:
        raise ValueError(f"unknown key {unknown[0]!r}")
    options: dict[str, Any] = {}
    for key in _FLAGS:
        options[key] = _checked(request, key, bool, default=False)
    options["indent_str"] = _checked(request, "indent", str, default="\t")
    options["indent_level"] = level = _checked(request, "indent_level", int, default=0)
    if not 0 <= level <= _MOST_LEVELS:
        raise ValueError(f"indent_level is {level}, at most {_MOST_LEVELS} are possible")
    name = request.get("type")
    if isinstance(name, bool) or not isinstance(name, int | str):
        raise TypeError("the key 'type' is a name or an ID")
    compat = _checked(request, "compat", str, default="")
    raw = _bytes(_checked(request, "data", str, default=""))
    return known[name].rendered(raw, compat=compat, **options)


def _checked(request: dict[str, Any], key: str, kind: type, *, default: Any) -> Any:
    value = request.get(key)
    if value is None:
        return default
    if kind is bool and value in (0, 1):
        return bool(value)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise TypeError(f"the key {key!r} is {value!r}, {kind.__name__} is expected")
    return value
