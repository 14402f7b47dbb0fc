"""Frames of stacks: an address with its symbol, formatted as text, JSON and folded stack."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple

from usdt.base.text import printable

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

__all__ = ("Frame", "Stack", "folded", "frame_json", "frame_text", "identity", "merged")


class Frame(NamedTuple):
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
        file_id: the build ID of the file, in hexadecimal; ``PATH:SIZE`` of a file that has none; ""
            if the address belongs to no file.
        link_address: the link-time address in that file, the same in every process of it.
        python: whether it is a Python function: ``address`` is that of its code object, ``offset``
            that in its bytecode, and ``inlined`` says that the interpreter called it without a C
            function between it and the next frame.
        kernel_id: the build ID of the kernel, or of its module, if the address is in it; "" if it
            is not known.
    """

    address: int
    symbol: str = ""
    offset: int = 0
    module: str = ""
    file: str = ""
    line: int = 0
    inlined: bool = False
    file_id: str = ""
    link_address: int = 0
    python: bool = False
    kernel_id: str = ""

    def __hash__(self) -> int:
        # Of two fields: caches of texts compute it for every frame of every stack.
        return hash((self.address, self.link_address))

    @property
    def build_id(self) -> str | None:
        """The build ID of the file, or of the kernel or its module; None if it has none."""
        if self.kernel_id:
            return self.kernel_id
        return None if ":" in self.file_id else self.file_id or None


# Frames whose texts are kept: the stacks of one program share most of them.
_REMEMBERED = 1 << 14
# The C function that runs Python functions, whatever parts of it a compiler has put elsewhere
# (``….cold``).
_INTERPRETER = "_PyEval_EvalFrameDefault"


class Stack(list[Frame]):
    """The frames of a stack, innermost first.

    Attributes:
        reason: why the stack ends before its outermost function; "" if it does not.
    """

    def __init__(self, frames: Iterable[Frame] = (), reason: str = "") -> None:
        super().__init__(frames)
        self.reason = reason


def merged(native: list[Frame], python: Sequence[Frame]) -> Stack:
    """Return a stack in which Python functions stand for the interpreter's own frames.

    Each call of the interpreter's loop is replaced by the functions that it runs. Python frames
    whose loop is not on the native stack, which may end early, come last.

    Args:
        native: the user stack, innermost first.
        python: the Python stack of the same hit.
    """
    waiting = list(python)
    found: list[Frame] = []
    for frame in native:
        if frame.symbol.partition(".")[0] != _INTERPRETER or not waiting:
            found.append(frame)
            continue
        run = next((at for at, one in enumerate(waiting) if not one.inlined), len(waiting) - 1) + 1
        found += waiting[:run]
        del waiting[:run]
    return Stack(found + waiting, native.reason if isinstance(native, Stack) else "")


@functools.lru_cache(_REMEMBERED)
def identity(frame: Frame) -> Hashable:
    """Return what equal frames of different processes have in common: file and link-time address.

    Of a Python function it is name, file and line. A frame of no file is equal to itself only.
    """
    if frame.python and frame.symbol:
        return frame.symbol, frame.file, frame.line
    return (frame.file_id, frame.link_address) if frame.file_id else frame


@functools.lru_cache(_REMEMBERED)
def frame_text(frame: Frame, *, shared: bool = False) -> str:
    """Return ``function+0x12 [module]``, as bcc does; ``0x7f… [module+0x…]`` without a symbol.

    A source line follows as ``at FILE:LINE``, as in gdb. An inlined function is written
    ``function (inlined) [module]``, as in perf. ``shared`` leaves out the address of a frame that
    processes share: ``[module+0x…]``. A Python function is written ``function (FILE:LINE)``.
    """
    if frame.python:
        return _python_text(frame)
    where = f" at {printable(_source(frame.file, frame))}" if frame.file else ""
    if shared and frame.file_id and not frame.symbol:
        return f"[{printable(frame.module.strip('[]'))}+{frame.link_address:#x}]{where}"
    return _frame_text(frame) + where


def _python_text(frame: Frame) -> str:
    if not frame.symbol:
        return f"{frame.address:#x} [python]"
    return printable(f"{frame.symbol} ({_source(frame.file, frame)})")


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


@functools.lru_cache(_REMEMBERED)
def frame_json(frame: Frame, *, shared: bool = False) -> str:
    """Return one JSON object: address, symbol (null if none is known), offset, module.

    A frame of the kernel also has build_id, if it is known. One of a file has build_id and
    link_address; if the file has no build ID, build_id is null and file_id is there. With a source
    line a frame has file and line (null if there is none), and inlined if the function was inlined.
    ``shared`` leaves out the address of a frame that processes share.
    A Python function has its symbol, file and line, and ``"python": true``.
    """
    if frame.python:
        return _python_json(frame)
    symbol = _quote(frame.symbol) if frame.symbol else "null"
    module = _quote(frame.module) if frame.module else "null"
    source = f', "file": {_quote(frame.file)}, "line": {frame.line or "null"}' if frame.file else ""
    source += ', "inlined": true' if frame.inlined else ""
    address = "" if shared and frame.file_id else f'"address": {frame.address}, '
    return (
        f'{{{address}"symbol": {symbol}, '
        f'"offset": {frame.offset}, "module": {module}{_file_json(frame)}{source}}}'
    )


def _file_json(frame: Frame) -> str:
    build_id = frame.build_id
    if frame.kernel_id:
        return f', "build_id": {_quote(frame.kernel_id)}'
    if not frame.file_id:
        return ""
    known = f'null, "file_id": {_quote(frame.file_id)}' if build_id is None else _quote(build_id)
    return f', "build_id": {known}, "link_address": {frame.link_address}'


def _quote(text: str) -> str:
    from json.encoder import encode_basestring_ascii  # noqa: PLC0415 - for JSON alone

    return encode_basestring_ascii(text)


def _python_json(frame: Frame) -> str:
    symbol, file = (_quote(text) if text else "null" for text in (frame.symbol, frame.file))
    line = frame.line or "null"
    return f'{{"symbol": {symbol}, "file": {file}, "line": {line}, "python": true}}'


def folded(frames: Sequence[Frame], *, kernel: bool = False) -> str:
    """Return ``outer;…;inner``, for flame graphs: names without offsets.

    Names of kernel functions end in ``_[k]``, those of inlined functions in ``_[i]``. With source
    lines a name is ``function (FILE:LINE)``, the file without its directories.
    """
    mark = "_[k]" if kernel else ""
    return ";".join(_folded_name(frame, mark) for frame in reversed(frames))


@functools.lru_cache(_REMEMBERED)
def _folded_name(frame: Frame, mark: str) -> str:
    mark = "_[i]" if frame.inlined and not frame.python else mark
    source = ""
    if frame.file:
        source = _source(f" ({frame.file.rpartition('/')[2]}", frame) + ")"
        source = printable(source).replace(";", ":")
    if frame.symbol:
        return printable(frame.symbol).replace(";", ":") + source + mark
    if frame.python:
        return "[python]"
    module = printable(frame.module).replace(";", ":")
    return (module if module.startswith("[") else f"[{module or 'unknown'}]") + source


def _bracketed(module: str) -> str:
    return module if module.startswith("[") else f"[{printable(module) or 'unknown'}]"
