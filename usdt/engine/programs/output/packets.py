"""Packets as files of tcpdump (pcap), which skboutput() of programs writes."""

from __future__ import annotations

import struct
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import BinaryIO

__all__ = ("PacketFiles",)

_HEADER = struct.pack("=IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 1 << 18, 101)  # LINKTYPE_RAW: IP
_PACKET = struct.Struct("=IIII")  # seconds, microseconds, bytes that follow, bytes of the packet


class PacketFiles:
    """The files of a run, which are made when their first packets come.

    Args:
        say: writes a message for the user: that of a file that cannot be written, once.
    """

    def __init__(self, say: Callable[[str], object]) -> None:
        self._say = say
        self._files: dict[str, BinaryIO | None] = {}  # None: it cannot be written
        self._offset = time.time_ns() - time.clock_gettime_ns(time.CLOCK_MONOTONIC)

    def write(self, path: str, data: bytes, length: int, moment: int) -> None:
        """Write a packet.

        Args:
            path: of the file.
            data: the bytes of the packet that are known.
            length: all bytes that it has.
            moment: nanoseconds of CLOCK_MONOTONIC.
        """
        microseconds = (moment + self._offset) // 1000
        head = _PACKET.pack(*divmod(microseconds, 1_000_000), len(data), max(length, len(data)))
        try:
            if path not in self._files:
                self._files[path] = None
                file = open(path, "wb")  # noqa: PTH123, SIM115 - pathlib costs an import; see close()
                self._files[path] = file
                file.write(_HEADER)
            if (known := self._files[path]) is not None:
                known.write(head + data)
        except OSError as err:
            self._fail(path, err)

    def flush(self) -> None:
        """Write what is not written yet, so that others can read it."""
        for path, file in [*self._files.items()]:
            try:
                if file is not None:
                    file.flush()
            except OSError as err:
                self._fail(path, err)

    def close(self) -> None:
        """Close all files."""
        self.flush()
        for file in self._files.values():
            if file is not None:
                file.close()
        self._files.clear()

    def _fail(self, path: str, err: OSError) -> None:
        self._files[path] = None
        self._say(f"ERROR: skboutput(): {path} cannot be written ({err.strerror})")
