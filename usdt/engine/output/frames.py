"""Frames of stacks: an address with its symbol, formatted as text, JSON and folded stack."""

from __future__ import annotations

from json.encoder import encode_basestring_ascii as quote
from typing import TYPE_CHECKING

from usdt.base.frozen import frozen
from usdt.base.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ("Frame", "Stack", "folded", "frame_json", "frame_text")


@frozen
class Frame:
    """One address of a stack with its symbol, module and source line.

    Attributes:
        address: address in the process, or in the kernel.
        symbol: the function, demangled; "" if none is known.
        offset: offset from the symbol's start; without a symbol, from the module's start (its
            link-time address).
        module: name of the file, ``[vdso]``, ``perf-PID.map``, ``[anon]``, ``[kernel]``,
            ``[nf_tables]``; "" if nothing is known of the address.
        file: path of the source file, if lines were requested and known; else "".
        line: line in ``file``; for a function that another was inlined into, the line of the call;
            0 if there is none.
        inlined: whether the function was inlined into that of the next frame. Both frames have the
            same address and offset.
    """

    address: int
    symbol: str = ""
    offset: int = 0
    module: str = ""
    file: str = ""
    line: int = 0
    inlined: bool = False


class Stack(list[Frame]):
    """The frames of a stack, innermost first.

    Attributes:
        reason: why the stack ends before its outermost function; "" if it does not.
    """

    def __init__(self, frames: Iterable[Frame] = (), reason: str = "") -> None:
        super().__init__(frames)
        self.reason = reason


def frame_text(frame: Frame) -> str:
    """Return ``function+0x12 [module]``, as bcc does; ``0x7f… [module+0x…]`` without a symbol.

    A source line follows as ``at FILE:LINE``, as in gdb. An inlined function is written
    ``function (inlined) [module]``, as in perf.
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
    # addr2line also writes ? for code that belongs to no line.
    return f"{file}:{frame.line or '?'}"


def frame_json(frame: Frame) -> str:
    """Return one JSON object: address, symbol (null if none is known), offset, module.

    With a source line it also has file and line (null if there is none), and inlined if the
    function was inlined.
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
    """Return ``outer;…;inner``, for flame graphs: names without offsets.

    Names of kernel functions end in ``_[k]``, those of inlined functions in ``_[i]``. With source
    lines a name is ``function (FILE:LINE)``, the file without its directories.
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
