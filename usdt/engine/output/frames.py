"""Frames of stacks: an address with what is known of it, as text, JSON and in folded stacks."""

from __future__ import annotations

from json.encoder import encode_basestring_ascii as quote
from typing import TYPE_CHECKING

from usdt.base.frozen import frozen
from usdt.base.text import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ("Frame", "folded", "frame_json", "frame_text")


@frozen
class Frame:
    """One address of a stack and what is known of it.

    Attributes:
        address: in the process, or in the kernel.
        symbol: the function, demangled; "" where none is known.
        offset: from the symbol's start; without a symbol from the module's (its link-time
            address).
        module: the file's name, ``[vdso]``, ``perf-PID.map``, ``[anon]``, ``[kernel]``,
            ``[nf_tables]``; "" where nothing is known of the address.
        file: path of the source, if lines were asked for and the file has them; else "".
        line: in it; of a function that another was inlined into, that of the call; 0: none.
        inlined: whether the function was inlined into that of the next frame, whose address and
            offset are given here, too.
    """

    address: int
    symbol: str = ""
    offset: int = 0
    module: str = ""
    file: str = ""
    line: int = 0
    inlined: bool = False


def frame_text(frame: Frame) -> str:
    """``function+0x12 [module]``, as bcc writes it; ``0x7f… [module+0x…]`` without a symbol.

    With a source line ``… at FILE:LINE``, as gdb writes it, and ``function (inlined) [module]``,
    as perf does.
    """
    where = f" at {printable(_source(frame.file, frame))}" if frame.file else ""
    return _frame_text(frame) + where


def _frame_text(frame: Frame) -> str:
    if frame.symbol:
        where = " (inlined)" if frame.inlined else f"+{frame.offset:#x}"
        return f"{printable(frame.symbol)}{where} {_bracketed(frame.module)}"
    if not frame.module or frame.module == "[anon]":
        return f"{frame.address:#x} {frame.module or '[unknown]'}"
    if frame.module.startswith("["):
        return f"{frame.address:#x} {frame.module}"
    return f"{frame.address:#x} [{printable(frame.module)}+{frame.offset:#x}]"


def _source(file: str, frame: Frame) -> str:
    # As addr2line has it where code is of no line.
    return f"{file}:{frame.line or '?'}"


def frame_json(frame: Frame) -> str:
    """One object: address, symbol (null where none is known), offset, module.

    With a source line also file and line (null: of none), and inlined if the function was.
    """
    symbol = quote(frame.symbol) if frame.symbol else "null"
    module = quote(frame.module) if frame.module else "null"
    source = f', "file": {quote(frame.file)}, "line": {frame.line or "null"}' if frame.file else ""
    source += ', "inlined": true' if frame.inlined else ""
    return (
        f'{{"address": {frame.address}, "symbol": {symbol}, '
        f'"offset": {frame.offset}, "module": {module}{source}}}'
    )


def folded(frames: Sequence[Frame], *, kernel: bool = False) -> str:
    """``outer;…;inner``, for flame graphs: names without offsets; the kernel's end in ``_[k]``.

    With source lines ``function (FILE:LINE)``, the file without its folders; inlined functions end
    in ``_[i]``.
    """
    mark = "_[k]" if kernel else ""
    return ";".join(_folded_name(frame, mark) for frame in reversed(frames))


def _folded_name(frame: Frame, mark: str) -> str:
    mark = "_[i]" if frame.inlined else mark
    source = ""
    if frame.file:
        source = _source(f" ({frame.file.rpartition('/')[2]}", frame) + ")"
        source = printable(source).replace(";", ":")
    if frame.symbol:
        return printable(frame.symbol).replace(";", ":") + source + mark
    module = printable(frame.module).replace(";", ":")
    return (module if module.startswith("[") else f"[{module or 'unknown'}]") + source


def _bracketed(module: str) -> str:
    return module if module.startswith("[") else f"[{printable(module) or 'unknown'}]"
