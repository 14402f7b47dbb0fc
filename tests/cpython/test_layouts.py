"""Offsets of CPython's structures: of each version's headers, and of its own table."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from usdt.cpython.layouts import (
    DEBUG_OFFSETS_SIZE,
    NO_FIELD,
    Layout,
    Unsupported,
    layout_of,
)
from usdt.elf.file import ElfFile
from usdt.elf.symbol_tables import SymbolTables

_PROGRAM = r"""
#define Py_BUILD_CORE 1
#include <Python.h>
#include <internal/pycore_runtime.h>
#include <internal/pycore_interp.h>
#include <internal/pycore_frame.h>
#include <stddef.h>
#include <stdio.h>
#define SHOW(name, type, field) printf(#name " %zu\n", offsetof(type, field))
int main(void)
{
    printf("version %d\n", PY_VERSION_HEX);
    SHOW(interpreters, _PyRuntimeState, interpreters.head);
    SHOW(interpreter_next, PyInterpreterState, next);
    SHOW(threads, PyInterpreterState, threads.head);
    SHOW(thread_next, PyThreadState, next);
    SHOW(thread_id, PyThreadState, native_thread_id);
#if PY_VERSION_HEX < 0x030d0000
    SHOW(frame, PyThreadState, cframe);
    SHOW(inner_frame, _PyCFrame, current_frame);
    SHOW(code, _PyInterpreterFrame, f_code);
    SHOW(instruction, _PyInterpreterFrame, prev_instr);
#else
    SHOW(frame, PyThreadState, current_frame);
    SHOW(code, _PyInterpreterFrame, f_executable);
    SHOW(instruction, _PyInterpreterFrame, instr_ptr);
#endif
#if PY_VERSION_HEX < 0x030c0000
    SHOW(is_entry, _PyInterpreterFrame, is_entry);
#endif
    SHOW(previous, _PyInterpreterFrame, previous);
    SHOW(owner, _PyInterpreterFrame, owner);
    SHOW(filename, PyCodeObject, co_filename);
    SHOW(qualname, PyCodeObject, co_qualname);
    SHOW(line, PyCodeObject, co_firstlineno);
    SHOW(line_table, PyCodeObject, co_linetable);
    SHOW(bytecode, PyCodeObject, co_code_adaptive);
    SHOW(string_length, PyASCIIObject, length);
    SHOW(string_state, PyASCIIObject, state);
    SHOW(string_hash, PyASCIIObject, hash);
    SHOW(bytes_size, PyBytesObject, ob_base.ob_size);
    SHOW(bytes_data, PyBytesObject, ob_sval);
    printf("ascii_data %zu\n", sizeof(PyASCIIObject));
    printf("other_data %zu\n", sizeof(PyCompactUnicodeObject));
    return 0;
}
"""


def _headers() -> list[str]:
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = [*Path("/usr/include").glob("python3.1[1-3]"), *pyenv.glob("*/include/python3.1[1-3]")]
    return sorted(str(path) for path in found if (path / "internal/pycore_frame.h").exists())


def _runtime_start(folder: Path) -> bytes:
    # The first bytes of _PyRuntime in the libpython or program beside the headers.
    version = folder.name
    roots = folder.parents[1]
    for path in (*roots.glob(f"lib/lib{version}.so.1.0"), roots / "bin" / version):
        with SymbolTables(ElfFile(path)) as symbols:
            found = symbols.variables("_PyRuntime")
            if found and not found[0].imported:
                offset = symbols.elf.offset_of(found[0].address, executable=False, writable=True)
                return symbols.elf.bytes_at(offset or 0, DEBUG_OFFSETS_SIZE)
    return b""


@pytest.mark.parametrize("folder", _headers() or [None])
def test_a_layout_is_that_of_the_headers(folder: str | None, tmp_path: Path) -> None:
    if folder is None or shutil.which("gcc") is None:
        pytest.skip("needs gcc and headers of CPython: apt-get install gcc python3-dev")
    source, program = tmp_path / "show.c", tmp_path / "show"
    source.write_text(_PROGRAM)
    words = [f"-I{folder}", f"-I{folder}/internal", "-w", str(source), "-o", str(program)]
    subprocess.run(["gcc", *words], check=True, timeout=60)
    shown = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    numbers = {name: int(number) for name, number in map(str.split, shown.splitlines())}
    version = numbers.pop("version")
    layout = layout_of(version, _runtime_start(Path(folder)))
    assert {name: getattr(layout, name) for name in numbers} == numbers
    left = {name for name in ("inner_frame", "is_entry") if getattr(layout, name) == NO_FIELD}
    assert set(Layout.__annotations__) - set(numbers) == left
    assert set(numbers) - set(Layout.__annotations__) == {"string_hash"}


def _table(version: int, numbers: list[int], free_threaded: int = 0) -> bytes:
    return b"xdebugpy" + struct.pack(f"<{2 + len(numbers)}Q", version, free_threaded, *numbers)


@pytest.mark.parametrize(
    ("version", "start", "reason"),
    [
        (0x030A04F0, b"", "Python 3.10.4; 3.11 to 3.14 are supported"),
        (0, b"", "Python 0.0.0"),
        (0x030D00F0, b"xdebugpy", "cut off"),
        (0, _table(0x030D00F0, [8, 8, 8]), "cut off"),
        (0, _table(0x030D00F0, [8] + [9] * 100), "damaged: runtime.finalizing is 9"),
        (0, _table(0x030D00F0, [1 << 40] * 100), "damaged: runtime.size"),
        (0, _table(0x030E00F0, [8] * 100, 1), "3.14.0 without a global lock"),
        (0, _table(0x031000F0, [8] * 100), "Python 3.16.0; 3.11 to 3.14 are supported"),
    ],
)
def test_an_unknown_version_or_a_damaged_table_is_refused(
    version: int, start: bytes, reason: str
) -> None:
    with pytest.raises(Unsupported, match=reason):
        layout_of(version, start)


def test_the_table_of_3_14_has_more_fields() -> None:
    layout = layout_of(0, _table(0x030E00F0, [1000, *range(1, 3)] + [1000] * 100))
    assert layout.interpreters == 2
