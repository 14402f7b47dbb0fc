"""An instance of the event tracer: a private buffer, with its own enabled events and filters."""

from __future__ import annotations

import contextlib
import errno
import re
import time
from typing import TYPE_CHECKING

from usdt.base.closeable import Closeable
from usdt.base.errors import NotSupported, SyscallError, TracingError
from usdt.tracefs.definitions import define_event, remove_event
from usdt.tracefs.format import parse_format
from usdt.tracefs.mount import write_control, write_hint
from usdt.tracefs.owner import is_orphan, own_name

if TYPE_CHECKING:
    from pathlib import Path

    from usdt.tracefs.definitions import DefinedEvent
    from usdt.tracefs.format import EventFormat

__all__ = ("Instance", "orphaned_instances", "remove_instance")

_ATTEMPTS = 100
_PAUSE = 0.01
_DROPPED = re.compile(r"^(?:overrun|commit overrun|dropped events): (\d+)$", re.MULTILINE)


class Instance(Closeable):
    """A private instance, created with tracing off, and the events defined for it.

    Args:
        root: mount point of tracefs.
        buffer: bytes for each CPU.

    Attributes:
        path: its folder in tracefs.

    Raises:
        NotSupported: the kernel has no instances.
        TracingError: it cannot be created.
    """

    def __init__(self, root: Path, *, buffer: int) -> None:
        self._root = root
        self._enabled: list[str] = []
        self._defined: dict[str, DefinedEvent] = {}
        self.path = self._make()
        try:
            self.write("tracing_on", "0")
            self.write("trace_clock", "mono")
            self.write("buffer_size_kb", str(max(1, buffer >> 10)))
            with contextlib.suppress(TracingError):  # Linux 5.0: wake readers for any event
                self.write("buffer_percent", "0")
        except BaseException:
            self.close()
            raise

    def _make(self) -> Path:
        folder = self._root / "instances"
        for number in range(_ATTEMPTS):
            path = folder / own_name(number)
            try:
                path.mkdir()
            except FileExistsError:
                continue
            except OSError as err:
                if err.errno == errno.ENOENT and not folder.exists():
                    raise NotSupported("instances of the tracer", None) from err
                hint = f"; {write_hint()}" if err.errno == errno.EACCES else ""
                raise TracingError(f"{path}: cannot be made: {err.strerror}{hint}") from err
            return path
        raise TracingError(f"{folder}: this process has {_ATTEMPTS} instances already")

    def write(self, name: str, text: str) -> None:
        """Write one of the instance's files.

        Raises:
            SyscallError: the kernel refuses.
        """
        write_control(self.path / name, text)

    def define(self, file: str, line: str, name: str) -> None:
        """Define an event, or one more of its attach points; it is removed with the instance.

        Arguments and errors are those of :func:`usdt.tracefs.definitions.define_event`.
        """
        self._defined[name] = define_event(self._root, file, line, name)

    def format(self, event: str) -> EventFormat:
        """Return the format of an event."""
        return parse_format((self.path / "events" / event / "format").read_text())

    def filter(self, event: str, text: str) -> None:
        """Record only hits that match a filter, in the kernel's filter language.

        Raises:
            TracingError: the kernel refuses the filter; the message has its explanation.
        """
        name = f"events/{event}/filter"
        try:
            self.write(name, text)
        except SyscallError as err:
            lines = (self.path / name).read_text(errors="replace").splitlines()
            with contextlib.suppress(SyscallError):
                self.write(name, "0")
            why = next((line for line in reversed(lines) if line.strip()), err.strerror or "")
            raise TracingError(f"the filter {text!r} of {event} is refused: {why.strip()}") from err

    def enable(self, event: str, condition: str = "") -> None:
        """Enable an event in this instance, with a filter unless it is empty.

        Raises:
            TracingError: as of :meth:`filter`; or perf uses the event.
        """
        if condition:
            self.filter(event, condition)
        name = f"events/{event}/enable"
        try:
            self.write(name, "1")
        except SyscallError as err:
            if err.errno != errno.EINTR:
                raise
            # See probe_event_enable() of kernel/trace/trace_uprobe.c.
            hint = "perf or a BPF program uses the event, which serves either them or the tracer"
            raise SyscallError(err.errno, f"enabling {event}", hint) from err
        self._enabled.append(event)

    def disable(self) -> None:
        """Disable the events that were enabled."""
        while self._enabled:
            with contextlib.suppress(SyscallError):
                self.write(f"events/{self._enabled[-1]}/enable", "0")
            self._enabled.pop()

    def start(self) -> None:
        """Turn tracing on."""
        self.write("tracing_on", "1")

    def dropped(self) -> int:
        """Return the number of records that were dropped, or overwritten before they were read."""
        total = 0
        for path in (self.path / "per_cpu").glob("cpu*/stats"):
            with contextlib.suppress(OSError):
                total += sum(map(int, _DROPPED.findall(path.read_text())))
        return total

    def close(self) -> None:
        """Disable the events, remove the instance, then the events defined for it; idempotent."""
        self.disable()
        try:
            remove_instance(self.path)
        finally:
            while self._defined:
                _, event = self._defined.popitem()
                with contextlib.suppress(SyscallError):  # remains for clean(), which reports it
                    remove_event(self._root, event)


def remove_instance(path: Path) -> None:
    """Remove an instance; idempotent.

    Raises:
        SyscallError: EBUSY: the instance is in use.
    """
    for attempt in range(_ATTEMPTS):
        try:
            path.rmdir()
        except FileNotFoundError:
            return
        except OSError as err:
            if err.errno == errno.EBUSY and attempt + 1 < _ATTEMPTS:
                time.sleep(_PAUSE)
                continue
            raise SyscallError(err.errno or errno.EIO, f"rmdir {path}") from err
        return


def orphaned_instances(root: Path) -> list[Path]:
    """Return the instances of this toolkit whose process has ended."""
    folder = root / "instances"
    if not folder.is_dir():
        return []
    return [path for path in sorted(folder.iterdir()) if is_orphan(path.name)]
