"""``kprobe dump``: show typed data as text."""

from __future__ import annotations

import binascii
import json
import sys
from typing import TYPE_CHECKING, Any

import click

from usdt.base.errors import BtfError, TracingError
from usdt.base.text import printable_lines
from usdt.engine.cli.click_group import plural

if TYPE_CHECKING:
    from kprobe.datatypes import Types
    from usdt.btf.values.options import Rendered

__all__ = ("dump",)

_FLAGS = ("compact", "skip_names", "emit_zeroes", "emit_strings")
_KNOWN = {"type", "data", "indent", "indent_level", "compat", *_FLAGS}
_MAX_LEVELS = 1000


@click.command("dump")
@click.option(
    "--btf", "path", metavar="FILE", help="Use the types of this file, not of the running kernel."
)
@click.option("--base", metavar="FILE", help="BTF that --btf extends: for a module, its kernel's.")
@click.option("--hex", "data", metavar="BYTES", help="The data, in hexadecimal.")
@click.option("--compact", is_flag=True, help="Print without line breaks and indentation.")
@click.option("--skip-names", is_flag=True, help="Omit names and types.")
@click.option("--emit-zeroes", is_flag=True, help="Also show zero values.")
@click.option("--emit-strings", is_flag=True, help="Show arrays of characters as strings.")
@click.option(
    "--indent", type=click.IntRange(0, 64), metavar="N", help="Indent by N spaces, not by a tab."
)
@click.option(
    "--indent-level",
    type=click.IntRange(0, _MAX_LEVELS),
    metavar="N",
    default=0,
    help="Indent everything by N levels more.",
)
@click.option(
    "--compat", type=click.Choice(["libbpf"]), help="Print libbpf's text, including its bugs."
)
@click.option("--concise", is_flag=True, help="Print one short line, without types.")
@click.option("--json", "as_json", is_flag=True, help="Print the value as JSON.")
@click.option("--batch", is_flag=True, help="Read JSON lines from stdin; answer in JSON lines.")
@click.argument("name", metavar="[TYPE]", required=False)
def dump(
    name: str | None, path: str | None, base: str | None, *, data: str | None, **settings: Any
) -> None:
    """Show data of TYPE as text. TYPE is a C type ('struct sk_buff', u32) or a type's ID.

    --batch reads objects such as {"type": "struct x", "data": "0a00…", "compact": true}, and
    answers each with {"text": …, "size": N} or {"text": …, "error": "E2BIG"}.
    """
    batch, concise, as_json = (settings.pop(name) for name in ("batch", "concise", "as_json"))
    if batch and (name is not None or data is not None):
        raise click.UsageError("--batch reads types and data from stdin; omit TYPE and --hex.")
    if not batch and (name is None or data is None):
        raise click.UsageError("Missing TYPE or --hex BYTES; --batch reads both from stdin.")
    from kprobe.datatypes import types  # noqa: PLC0415 - --help must not pay

    known = types(path, base=base)
    if name is None or data is None:
        _batch(known, _defaults(settings))
        return
    data_type, raw = known[name], _bytes(data)
    if as_json:
        sys.stdout.write(json.dumps(data_type.value(raw)) + "\n")
        return
    if concise:
        sys.stdout.write(printable_lines(data_type.line(raw)) + "\n")
        return
    _print(_render(known, {"type": name, "data": data} | _defaults(settings)), name, len(raw))


def _print(rendered: Rendered, name: str, length: int) -> None:
    sys.stdout.write(printable_lines(rendered.text) + "\n")
    if rendered.error == "E2BIG":
        raise BtfError(f"{name}: {plural(length, 'byte')} of data: too few (E2BIG)")
    if rendered.error:
        raise BtfError(f"{name}: values of this type cannot be shown ({rendered.error})")


def _defaults(settings: dict[str, Any]) -> dict[str, Any]:
    defaults = {key: True for key in _FLAGS if settings[key]}
    if settings["indent"] is not None:
        defaults["indent"] = " " * settings["indent"]
    if settings["compat"]:
        defaults["compat"] = settings["compat"]
    return defaults | {"indent_level": settings["indent_level"]}


def _bytes(text: str) -> bytes:
    digits = "".join(text.split()).removeprefix("0x")
    try:
        return binascii.unhexlify(digits)
    except ValueError as err:
        raise BtfError(f"{text[:40]!r} is not hexadecimal: {err}") from err


def _batch(known: Types, defaults: dict[str, Any]) -> None:
    sys.stdout.flush()
    for line in sys.stdin.buffer:
        if line.strip():
            sys.stdout.write(json.dumps(_answer(known, line, defaults)) + "\n")
            sys.stdout.flush()


def _answer(known: Types, line: bytes, defaults: dict[str, Any]) -> dict[str, Any]:
    # An invalid line gets an error as its answer, so that the other lines are still answered.
    try:
        request = json.loads(line)
        if not isinstance(request, dict):
            return {"text": "", "error": "EINVAL", "message": "expected a JSON object"}
        rendered = _render(known, defaults | request)
    except (TracingError, TypeError, ValueError, RecursionError) as err:
        return {"text": "", "error": "EINVAL", "message": str(err)}
    if rendered.error:
        return {"text": rendered.text, "error": rendered.error}
    return {"text": rendered.text, "size": rendered.size}


def _render(known: Types, request: dict[str, Any]) -> Rendered:
    unknown = sorted(set(request) - _KNOWN)
    if unknown:
        raise ValueError(f"unknown key {unknown[0]!r}")
    options: dict[str, Any] = {}
    for key in _FLAGS:
        options[key] = _checked(request, key, bool, default=False)
    options["indent_str"] = _checked(request, "indent", str, default="\t")
    options["indent_level"] = level = _checked(request, "indent_level", int, default=0)
    if not 0 <= level <= _MAX_LEVELS:
        raise ValueError(f"indent_level is {level}, expected 0 to {_MAX_LEVELS}")
    name = request.get("type")
    if isinstance(name, bool) or not isinstance(name, int | str):
        raise TypeError("the key 'type' must be a name or an ID")
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
        raise TypeError(f"the key {key!r} is {value!r}, expected {kind.__name__}")
    return value
