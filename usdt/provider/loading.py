"""Load an object into this process, from a memfd or a file, by dlopen().

A library is closed when nothing refers to it any more. Each of its functions and semaphores keeps
it open, so that a thread in the middle of a call is safe.
"""

from __future__ import annotations

import _ctypes
import contextlib
import ctypes
import os
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from usdt.base.errors import TracingError

if TYPE_CHECKING:
    from collections.abc import Callable

    from usdt.provider.image import Image

__all__ = ("NOTHING", "Counter", "Library", "ProviderError")


class ProviderError(TracingError):
    """An error in the definition or loading of probes."""


class Counter(Protocol):
    """A semaphore: the number of tracers of a probe."""

    value: int


class _Nothing:
    # The semaphore of a probe that is not loaded: always 0.
    value = 0


NOTHING: Counter = _Nothing()


class Library:
    """A loaded object.

    Args:
        image: the object.
        name: shown in /proc/PID/maps.
        path: a new file for the object, for tracers that cannot read a memfd; removed when the
            library is closed. None for a memfd.

    Raises:
        ProviderError: the object cannot be written or loaded.
    """

    def __init__(self, image: Image, name: str, path: str | None) -> None:
        self._image = image
        try:
            if path is None:
                number = os.memfd_create(name, os.MFD_CLOEXEC)
            else:
                number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o755)
        except OSError as err:
            what = path or f"memfd {name}"
            raise ProviderError(f"{what}: cannot be made for the probes: {err.strerror}") from err
        try:
            with open(number, "wb", closefd=False) as file:
                file.write(image.data)
            mapping = _Mapping(_ctypes.dlopen(path or f"/proc/self/fd/{number}", os.RTLD_NOW))
        except OSError as err:
            _discard(number, path)
            raise ProviderError(f"{path or name}: cannot be loaded: {err}") from err
        # Keep the descriptor open: bcc and bpftrace read a memfd through it. And the dynamic linker
        # identifies a library by its path, so the descriptor number must not be reused.
        weakref.finalize(mapping, _close, mapping.handle, number, path)
        self._mapping = mapping

    def function(self, index: int, arguments: tuple[bool, ...]) -> Callable[..., object]:
        """Return the stub of a probe; ``arguments`` is True for each pointer to bytes."""
        types = [ctypes.c_char_p if text else ctypes.c_uint64 for text in arguments]
        # Not CFUNCTYPE, which would release the interpreter's lock for two instructions.
        stub = ctypes.PYFUNCTYPE(None, *types)(self._address(self._image.functions[index]))
        stub.mapping = self._mapping  # type: ignore[attr-defined]  # the stub keeps it open
        return stub

    def semaphore(self, index: int) -> Counter:
        """Return the semaphore of a probe, which tracers increment and decrement."""
        found = _Semaphore.from_address(self._address(self._image.semaphores[index]))
        found.mapping = self._mapping
        return found

    def _address(self, symbol: str) -> int:
        return _ctypes.dlsym(self._mapping.handle, symbol)


class _Mapping:
    """A handle of dlopen(); closed when nothing refers to it any more."""

    def __init__(self, handle: int) -> None:
        self.handle = handle


class _Semaphore(ctypes.c_uint16):
    mapping: _Mapping  # the semaphore keeps it open


def _close(handle: int, number: int, path: str | None) -> None:
    _ctypes.dlclose(handle)
    _discard(number, path)


def _discard(number: int, path: str | None) -> None:
    os.close(number)
    if path is not None:
        with contextlib.suppress(OSError):
            Path(path).unlink()
