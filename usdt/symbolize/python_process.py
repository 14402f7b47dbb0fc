"""A Python process: where its interpreters are, and its code objects.

The runtime of CPython is the variable ``_PyRuntime`` of the program or of its libpython. It is
found by that symbol, and its version by ``Py_Version``.
"""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING

from usdt.cpython.code_objects import CodeObject, bytes_of, decode_copy, text_of, wanted_size
from usdt.cpython.layouts import DEBUG_OFFSETS_SIZE, Unsupported, layout_of, version_text
from usdt.cpython.runtime import runtime_entry
from usdt.procfs.memory import read_memory
from usdt.procfs.process import status_numbers
from usdt.procfs.thread_groups import threads_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from usdt.cpython.layouts import Layout
    from usdt.cpython.stack_record import CodeKey
    from usdt.procfs.maps import Mapping
    from usdt.symbolize.file_symbols import FileSymbols

__all__ = ("PythonProcess", "may_be_python")

_HEAD = 64  # bytes of a string or bytes object from which its size is known
_MAX_OBJECT = 1 << 20  # bytes
_MAX_STATES = 256  # interpreters and threads that are looked at


def may_be_python(path: str) -> bool:
    """Return whether a file may have CPython's runtime, by its name."""
    return "python" in os.path.basename(path).lower()  # noqa: PTH119 - a Path is not needed


class PythonProcess:
    """A process that runs CPython.

    Args:
        pid: the process.
        layout: the offsets of its version.
        runtime: the address of ``_PyRuntime``.

    Attributes:
        entry: what a program must know of it: see :mod:`usdt.cpython.runtime`.
    """

    def __init__(self, pid: int, layout: Layout, runtime: int) -> None:
        self.pid = pid
        self.layout = layout
        self.runtime = runtime
        namespace = os.stat(f"/proc/{pid}/ns/pid")  # noqa: PTH116 - a Path is not needed
        self.entry = runtime_entry(layout, runtime, (namespace.st_dev, namespace.st_ino))

    @classmethod
    def find(cls, pid: int, mapping: Mapping, file: FileSymbols) -> PythonProcess | None:
        """Return the process if the file of one of its mappings has CPython's runtime.

        Raises:
            Unsupported: it is a version whose memory is not known.
            OSError: the process has ended.
        """
        runtime = file.variable("_PyRuntime")
        if runtime is None:
            return None
        bias = mapping.start - file.address_of(mapping.offset)
        version = file.variable("Py_Version")
        number = 0
        if version is not None:
            number = int.from_bytes(read_memory(pid, bias + version, 8), "little")
        start = read_memory(pid, bias + runtime, DEBUG_OFFSETS_SIZE)
        if not start:
            raise Unsupported(
                "its memory cannot be read: needs CAP_SYS_PTRACE, and CAP_DAC_READ_SEARCH for "
                "processes of other users"
            )
        if version is None and not start.startswith(b"xdebugpy"):
            raise Unsupported("Python before 3.11; 3.11 to 3.14 are supported")
        made = cls(pid, layout_of(number, start), bias + runtime)
        made.check(number)
        return made

    def check(self, version: int) -> None:
        """Look whether the offsets lead to a thread of the process.

        A process that has no interpreter yet is not checked.

        Raises:
            Unsupported: they do not.
        """
        numbers = [number for number in self._thread_numbers() if number]
        if not numbers:
            return
        own = set()
        for thread in threads_of(self.pid):
            try:
                own.add((status_numbers(thread, b"NSpid") or (thread,))[-1])
            except OSError:
                continue  # it has ended
        if own and not own.intersection(numbers):
            raise Unsupported(
                f"Python {version_text(version)}: its memory is not as this version has it"
            )

    def _thread_numbers(self) -> Iterator[int]:
        # The IDs of threads in the states of all interpreters.
        layout = self.layout
        interpreter = self._word(self.runtime + layout.interpreters)
        thread = 0
        for _ in range(_MAX_STATES):
            if thread:
                yield self._word(thread + layout.thread_id)
                thread = self._word(thread + layout.thread_next)
            elif interpreter:
                thread = self._word(interpreter + layout.threads)
                interpreter = self._word(interpreter + layout.interpreter_next)
            else:
                return

    def code(self, key: CodeKey, copy: bytes | None) -> CodeObject | None:
        """Return a code object: from the copy of a program, else from the process.

        None if neither has it: the code object is gone, or the process.
        """
        found = None if copy is None else decode_copy(copy, key, self.layout)
        return found or self._read_code(key)

    def _read_code(self, key: CodeKey) -> CodeObject | None:
        layout = self.layout
        table_address = self._word(key.address + layout.line_table)
        name_address = self._word(key.address + layout.qualname)
        content = table_address ^ self._word(name_address + layout.string_hash)
        line = read_memory(self.pid, key.address + layout.line, 4)
        if content != key.content or line != struct.pack("<I", key.first_line):
            return None  # another object is there now
        name = self._object(name_address, text=True)
        file = self._object(self._word(key.address + layout.filename), text=True)
        table = self._object(table_address, text=False)
        shown, path = text_of(name, layout), text_of(file, layout)
        if shown is None or path is None:
            return None
        return CodeObject(shown, path, key.first_line, bytes_of(table, layout) or b"")

    def _object(self, address: int, *, text: bool) -> bytes:
        head = read_memory(self.pid, address, _HEAD)
        size = wanted_size(head, self.layout, text=text)
        return read_memory(self.pid, address, size) if 0 < size <= _MAX_OBJECT else b""

    def _word(self, address: int) -> int:
        data = read_memory(self.pid, address, 8)
        return int.from_bytes(data, "little") if len(data) == 8 else 0
