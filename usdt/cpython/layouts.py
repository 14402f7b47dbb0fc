"""Offsets of CPython's structures, by version.

3.11 and 3.12: constants from CPython's headers, for every 64-bit Linux; tests compare them with
the headers. From 3.13 on, ``_PyRuntime`` begins with a table of these offsets
(``_Py_DebugOffsets``): u64 numbers in groups, each of which begins with the size of its structure.
"""

from __future__ import annotations

import struct

from usdt.base.frozen import frozen

__all__ = ("DEBUG_OFFSETS_SIZE", "NO_FIELD", "Layout", "Unsupported", "layout_of", "version_text")

DEBUG_OFFSETS_SIZE = 1024  # bytes that are read of the table; 584 in 3.13
NO_FIELD = (1 << 32) - 1  # the offset of a field that the version does not have
_COOKIE = b"xdebugpy"
_MAX_OFFSET = 1 << 24  # larger offsets are not those of a real structure


class Unsupported(ValueError):  # noqa: N818 - named for the condition
    """The version of Python, or its table of offsets, is not known."""


@frozen
class Layout:
    """Offsets in bytes of the fields that lead to the frames of a thread and to their names.

    Attributes:
        interpreters: the first interpreter, in ``_PyRuntime``.
        interpreter_next, threads: the next interpreter and the first thread, in an interpreter.
        thread_next, thread_id, frame: the next thread, the kernel's ID of the thread and its
            innermost frame, in a thread; the frame is in a structure that the thread points to if
            ``inner_frame`` is not NO_FIELD: that is its offset there.
        code, previous, instruction, owner, is_entry: in a frame.
        filename, qualname, line, line_table, bytecode: in a code object.
        string_length, string_state: in a string.
        ascii_data, other_data: where the characters begin.
        bytes_size, bytes_data: in a bytes object.
    """

    interpreters: int
    interpreter_next: int
    threads: int
    thread_next: int
    thread_id: int
    frame: int
    inner_frame: int
    code: int
    previous: int
    instruction: int
    owner: int
    is_entry: int
    filename: int
    qualname: int
    line: int
    line_table: int
    bytecode: int
    ascii_data: int
    other_data: int
    string_length: int = 16
    string_state: int = 32
    bytes_size: int = 16
    bytes_data: int = 32

    @property
    def string_hash(self) -> int:
        """Where a string keeps its hash; -1 there means that nobody has asked for it."""
        return self.string_length + 8


_CONSTANT = {
    (3, 11): Layout(
        interpreters=40,
        interpreter_next=0,
        threads=16,
        thread_next=8,
        thread_id=160,
        frame=56,
        inner_frame=8,
        code=32,
        previous=48,
        instruction=56,
        owner=69,
        is_entry=68,
        filename=112,
        qualname=128,
        line=72,
        line_table=136,
        bytecode=184,
        ascii_data=48,
        other_data=72,
    ),
    (3, 12): Layout(
        interpreters=40,
        interpreter_next=0,
        threads=72,
        thread_next=8,
        thread_id=144,
        frame=56,
        inner_frame=0,
        code=0,
        previous=8,
        instruction=56,
        owner=70,
        is_entry=NO_FIELD,
        filename=112,
        qualname=128,
        line=68,
        line_table=136,
        bytecode=192,
        ascii_data=40,
        other_data=56,
    ),
}

# The groups of the table of 3.13, and the fields that are needed of each.
_GROUPS_3_13 = (
    "runtime: size finalizing interpreters_head",
    "interpreter: size id next threads_head gc modules sysdict builtins ceval gil on locked holder",
    "thread: size prev next interp current_frame thread_id native_thread_id datastack_chunk status",
    "frame: size previous executable instr_ptr localsplus owner",
    "code: size filename name qualname linetable firstlineno argcount names kinds code_adaptive",
    "object: size type",
    "type: size name repr flags",
    "tuple: size item ob_size",
    "list: size item ob_size",
    "dict: size keys values",
    "float: size value",
    "long: size tag digit",
    "bytes: size ob_size sval",
    "unicode: size state length ascii_size",
)
# 3.14 adds fields at the end of some groups, one in the middle, and a group.
_GROUPS_3_14 = (
    _GROUPS_3_13[0],
    f"{_GROUPS_3_13[1].replace('threads_head', 'threads_head threads_main')} code_age tlbc_age",
    _GROUPS_3_13[2],
    f"{_GROUPS_3_13[3]} stackpointer tlbc_index",
    f"{_GROUPS_3_13[4]} tlbc",
    *_GROUPS_3_13[5:9],
    "set: size used table mask",
    *_GROUPS_3_13[9:],
)
_TABLES = {(3, 13): _GROUPS_3_13, (3, 14): _GROUPS_3_14}


def version_text(version: int) -> str:
    """Return ``PY_VERSION_HEX`` as text: ``3.11.7``."""
    return f"{version >> 24 & 255}.{version >> 16 & 255}.{version >> 8 & 255}"


def layout_of(version: int, start: bytes) -> Layout:
    """Return the layout of a process.

    Args:
        version: ``PY_VERSION_HEX``; 0 if it is not known.
        start: the first bytes of ``_PyRuntime``.

    Raises:
        Unsupported: the version is not known, or the table of offsets is damaged.
    """
    if start.startswith(_COOKIE):
        return _from_table(start)
    found = _CONSTANT.get((version >> 24 & 255, version >> 16 & 255))
    if found is None:
        raise Unsupported(f"Python {version_text(version)}; 3.11 to 3.14 are supported")
    return found


def _from_table(start: bytes) -> Layout:
    if len(start) < 24:
        raise Unsupported("its table of offsets is cut off")
    version, free_threaded = struct.unpack_from("<QQ", start, 8)
    key = version >> 24 & 255, version >> 16 & 255
    if key not in _TABLES:
        raise Unsupported(f"Python {version_text(version)}; 3.11 to 3.14 are supported")
    if free_threaded and key != (3, 13):
        raise Unsupported(f"Python {version_text(version)} without a global lock")
    numbers = _numbers(start, _TABLES[key])
    return Layout(
        interpreters=numbers["runtime.interpreters_head"],
        interpreter_next=numbers["interpreter.next"],
        threads=numbers["interpreter.threads_head"],
        thread_next=numbers["thread.next"],
        thread_id=numbers["thread.native_thread_id"],
        frame=numbers["thread.current_frame"],
        inner_frame=NO_FIELD,
        code=numbers["frame.executable"],
        previous=numbers["frame.previous"],
        instruction=numbers["frame.instr_ptr"],
        owner=numbers["frame.owner"],
        is_entry=NO_FIELD,
        filename=numbers["code.filename"],
        qualname=numbers["code.qualname"],
        line=numbers["code.firstlineno"],
        line_table=numbers["code.linetable"],
        bytecode=numbers["code.code_adaptive"],
        ascii_data=numbers["unicode.ascii_size"],
        other_data=numbers["unicode.size"] - 8,
        string_length=numbers["unicode.length"],
        string_state=numbers["unicode.state"],
        bytes_size=numbers["bytes.ob_size"],
        bytes_data=numbers["bytes.sval"],
    )


def _numbers(start: bytes, groups: tuple[str, ...]) -> dict[str, int]:
    # Every number of the table. An offset beyond its structure means that the table is damaged, or
    # that it is not of this version.
    fields = [(group, field) for group, _, rest in _split(groups) for field in rest]
    if len(start) < 24 + 8 * len(fields):
        raise Unsupported("its table of offsets is cut off")
    found = {}
    for position, (group, field) in enumerate(fields):
        (number,) = struct.unpack_from("<Q", start, 24 + 8 * position)
        found[f"{group}.{field}"] = number
        size = found[f"{group}.size"]
        if size > _MAX_OFFSET or number > size:
            raise Unsupported(f"its table of offsets is damaged: {group}.{field} is {number}")
    return found


def _split(groups: tuple[str, ...]) -> list[tuple[str, str, list[str]]]:
    return [(name, colon, rest.split()) for name, colon, rest in (g.partition(":") for g in groups)]
