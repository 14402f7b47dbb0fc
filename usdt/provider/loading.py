"""An object made in memory, loaded into this process: memfd, dlopen, and back.

The one module here that talks to the dynamic linker. What is loaded goes when nobody holds it any
more, a thread in the middle of a call included: each function keeps its library, and the library
is closed with the last of them.
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
    """Probes that cannot be defined, loaded or fired as asked."""


class Counter(Protocol):
    """A semaphore: how many tracers look at a probe."""

    value: int


class _Nothing:
    # The semaphore of a probe that is not loaded.
    value = 0


NOTHING: Counter = _Nothing()


class Library:
    """A loaded object.

    Args:
        image: the object.
        name: shown in /proc/PID/maps.
        path: a file to write it to, for tracers that cannot read a memfd; removed at the end.

    Raises:
        ProviderError: it cannot be written or loaded.
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
        # The descriptor stays: bcc and bpftrace read a memfd through it. And the linker knows a
        # library by its path, so the number must not come to mean another one.
        weakref.finalize(mapping, _close, mapping.handle, number, path)
        self._mapping = mapping

    def function(self, index: int, arguments: tuple[bool, ...]) -> Callable[..., object]:
        """The stub of a probe; ``arguments`` tells which are pointers to bytes."""
        types = [ctypes.c_char_p if text else ctypes.c_uint64 for text in arguments]
        # Not CFUNCTYPE: that would let go of the interpreter's lock around two instructions.
        stub = ctypes.PYFUNCTYPE(None, *types)(self._address(self._image.functions[index]))
        stub.mapping = self._mapping  # type: ignore[attr-defined]  # held as long as the stub
        return stub

    def semaphore(self, index: int) -> Counter:
        """The semaphore of a probe, as the kernel counts it."""
        found = _Semaphore.from_address(self._address(self._image.semaphores[index]))
        found.mapping = self._mapping
        return found

    def _address(self, symbol: str) -> int:
        return _ctypes.dlsym(self._mapping.handle, symbol)


class _Mapping:
    """What dlopen() returned; closed when nobody holds it any more."""

    def __init__(self, handle: int) -> None:
        self.handle = handle


class _Semaphore(ctypes.c_uint16):
    mapping: _Mapping  # held as long as the semaphore


def _close(handle: int, number: int, path: str | None) -> None:
    _ctypes.dlclose(handle)
    _discard(number, path)


def _discard(number: int, path: str | None) -> None:
    os.close(number)
    if path is not None:
        with contextlib.suppress(OSError):
            Path(path).unlink()
