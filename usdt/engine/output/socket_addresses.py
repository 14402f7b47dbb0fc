"""Socket addresses: the bytes of a ``struct sockaddr`` as a value and as text."""

from __future__ import annotations

import struct
from typing import Any

__all__ = ("FAMILIES", "socket_address", "socket_address_text")

#: Number → name of an address family, include/linux/socket.h.
FAMILIES = {
    0: "AF_UNSPEC",
    1: "AF_UNIX",
    2: "AF_INET",
    4: "AF_IPX",
    10: "AF_INET6",
    15: "AF_KEY",
    16: "AF_NETLINK",
    17: "AF_PACKET",
    21: "AF_RDS",
    29: "AF_CAN",
    30: "AF_TIPC",
    31: "AF_BLUETOOTH",
    38: "AF_ALG",
    39: "AF_NFC",
    40: "AF_VSOCK",
    44: "AF_XDP",
    45: "AF_MCTP",
}
_UNIX, _INET, _INET6 = 1, 2, 10
_INET_SIZE, _INET6_SIZE = 8, 24  # bytes that have a port and an address


def socket_address(data: bytes, order: str = "=") -> dict[str, Any]:
    """Return the parts of a socket address.

    These are ``family``, a name or a number, and ``address`` and ``port`` for AF_INET and AF_INET6
    (``scope`` if it is not 0), ``path`` or ``abstract`` for an AF_UNIX socket that has a name, or
    else ``data``, the bytes after the family in hexadecimal. No bytes have no parts.

    Args:
        data: the bytes.
        order: the byte order of the machine, "=" (this one), "<" or ">".
    """
    if len(data) < 2:
        return {}
    number = int(struct.unpack_from(f"{order}H", data)[0])
    found: dict[str, Any] = {"family": FAMILIES.get(number, number)}
    if number == _UNIX:
        return found | _unix(data[2:])
    if number == _INET and len(data) >= _INET_SIZE:
        port, host = struct.unpack_from(">H4s", data, 2)
        return {**found, "address": _shown(_INET, host), "port": port}
    if number == _INET6 and len(data) >= _INET6_SIZE:
        port, host = struct.unpack_from(">H4x16s", data, 2)
        found |= {"address": _shown(_INET6, host), "port": port}
        scope = struct.unpack_from(f"{order}I", data, 24)[0] if len(data) >= 28 else 0
        return found | ({"scope": scope} if scope else {})
    return found | ({"data": data[2:].hex()} if len(data) > 2 else {})


def _unix(name: bytes) -> dict[str, Any]:
    if not name:
        return {}
    if name[0]:
        return {"path": name.split(b"\0", 1)[0].decode("utf-8", "surrogateescape")}
    abstract = name[1:].decode("utf-8", "surrogateescape")
    return {"abstract": abstract} if abstract.strip("\0") else {}


def _shown(family: int, host: bytes) -> str:
    import socket  # noqa: PLC0415 - only if addresses are shown

    return socket.inet_ntop(socket.AF_INET if family == _INET else socket.AF_INET6, host)


def socket_address_text(parts: dict[str, Any]) -> str:
    """Return the text of a socket address from its parts: ``AF_INET 127.0.0.1:80``.

    Names of AF_UNIX are in double quotes, after ``@`` if they are abstract. Their control
    characters are not escaped.
    """
    if not parts:
        return ""
    words = [str(parts["family"])]
    if "port" in parts:
        host, scope = parts["address"], f"%{parts['scope']}" if "scope" in parts else ""
        inner = f"[{host}{scope}]" if ":" in host else host
        words.append(f"{inner}:{parts['port']}")
    elif "path" in parts:
        words.append(_quoted(parts["path"]))
    elif "abstract" in parts:
        words.append(f"@{_quoted(parts['abstract'])}")
    elif "data" in parts:
        words.append(parts["data"])
    return " ".join(words)


def _quoted(name: str) -> str:
    body = name.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{body}"'
