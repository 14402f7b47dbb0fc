"""Print types exactly as ``bpftool btf dump`` does: ``format raw``, and JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from usdt.btf.format import Kind
from usdt.btf.types import (
    Array,
    Composite,
    DataSection,
    DeclTag,
    Enum,
    Float,
    Forward,
    Function,
    FunctionProto,
    Int,
    Modifier,
    Pointer,
    Type,
    Typedef,
    Unknown,
    Variable,
    Void,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from usdt.btf.reader import Btf

__all__ = ("raw_lines", "raw_text", "to_json")

_ENCODINGS = {0: "(none)", 1: "SIGNED", 2: "CHAR", 4: "BOOL"}
_LINKAGES = ("static", "global", "extern")
_ANONYMOUS = "(anon)"

# JSON keys of the lists of items.
_ITEMS = ("members", "values", "params", "vars")


def to_json(btf: Btf, found: Type) -> dict[str, Any]:
    """Return one type as a JSON object, with bpftool's keys in bpftool's order."""
    kind = found.kind.name if isinstance(found.kind, Kind) else "UNKNOWN"
    start: dict[str, Any] = {"id": found.id, "kind": kind, "name": found.name or _ANONYMOUS}
    return start | _fields(btf, found)


def _fields(btf: Btf, found: Type) -> dict[str, Any]:
    match found:
        case Int():
            encoding = _ENCODINGS.get(found.encoding, "UNKN")
            return {
                "size": found.size,
                "bits_offset": found.bit_offset,
                "nr_bits": found.bits,
                "encoding": encoding,
            }
        case Pointer() | Typedef() | Modifier():
            return {"type_id": found.type_id}
        case Array():
            return {
                "type_id": found.type_id,
                "index_type_id": found.index_type_id,
                "nr_elems": found.count,
            }
        case Composite() | Enum() | FunctionProto() | DataSection():
            return _fields_with_items(btf, found)
        case Forward():
            return {"fwd_kind": "union" if found.union else "struct"}
        case Function() | Variable():
            return {"type_id": found.type_id, "linkage": _linkage(found.linkage)}
        case Float():
            return {"size": found.size}
        case DeclTag():
            return {"type_id": found.type_id, "component_idx": found.component_idx}
        case Unknown() | Void():
            return {}


def _linkage(number: int) -> str:
    return _LINKAGES[number] if number < len(_LINKAGES) else "(unknown)"


def _fields_with_items(
    btf: Btf, found: Composite | Enum | FunctionProto | DataSection
) -> dict[str, Any]:
    if isinstance(found, Composite):
        members = [_member(m.name, m.type_id, m.bit_offset, m.bitfield_size) for m in found.members]
        return {"size": found.size, "vlen": len(members), "members": members}
    if isinstance(found, Enum):
        values = [{"name": one.name or _ANONYMOUS, "val": one.value} for one in found.values]
        encoding = "SIGNED" if found.signed else "UNSIGNED"
        return {"encoding": encoding, "size": found.size, "vlen": len(values), "values": values}
    if isinstance(found, FunctionProto):
        parameters = [
            {"name": one.name or _ANONYMOUS, "type_id": one.type_id} for one in found.parameters
        ]
        return {"ret_type_id": found.return_type_id, "vlen": len(parameters), "params": parameters}
    items: list[dict[str, Any]] = []
    for item in found.items:
        row: dict[str, Any] = {"type_id": item.type_id, "offset": item.offset, "size": item.size}
        variable = btf.type(item.type_id)
        if isinstance(variable, Variable | Function):
            row["type"] = f"{variable.kind.name} '{variable.name or _ANONYMOUS}'"
        items.append(row)
    return {"size": found.size, "vlen": len(items), "vars": items}


def _member(name: str, target: int, bit_offset: int, bits: int) -> dict[str, Any]:
    row = {"name": name or _ANONYMOUS, "type_id": target, "bits_offset": bit_offset}
    return row | {"bitfield_size": bits} if bits else row


def raw_lines(btf: Btf) -> Iterator[str]:
    """Yield each type, without the base's, as text of one or more lines that end with a newline.

    Raises:
        BtfError: a type is damaged.
    """
    for number in range(btf.first, btf.end):
        yield raw_text(btf, btf.type(number))


def raw_text(btf: Btf, found: Type) -> str:
    """Return one type as ``bpftool btf dump`` prints it."""
    row = to_json(btf, found)
    parts = [f"[{row.pop('id')}] {row.pop('kind')} '{row.pop('name')}'"]
    long = isinstance(found, Enum) and found.kind == Kind.ENUM64
    for key, value in row.items():
        if key in _ITEMS:
            parts += [f"\n\t{_item_text(key, item, _suffix(found, long=long))}" for item in value]
        else:
            comma = "," if isinstance(found, Variable) and key == "linkage" else ""
            parts.append(f"{comma} {key}={value}")
    return "".join(parts) + "\n"


def _suffix(found: Type, *, long: bool) -> str:
    if not long or not isinstance(found, Enum):
        return ""
    return "LL" if found.signed else "ULL"


def _item_text(key: str, item: dict[str, Any], suffix: str) -> str:
    what = item.pop("type", None)
    name = item.pop("name", None)
    text = "" if name is None else f"'{name}' "
    text += " ".join(f"{label}={value}" for label, value in item.items()) + suffix
    return text if what is None or key != "vars" else f"{text} ({what})"
