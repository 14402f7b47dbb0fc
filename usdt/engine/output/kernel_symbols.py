r"""The kernel's symbols, from /proc/kallsyms: ``ffffffff81000000 T name\t[module]``.

The file is large (some 200,000 lines). Therefore it is read only when the first kernel address is
resolved, and names stay bytes until they are shown.
"""

from __future__ import annotations

import bisect
import re
import zlib
from typing import TYPE_CHECKING

from usdt.engine.output.frames import Frame

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ("KALLSYMS", "KernelSymbols", "address_of")

KALLSYMS = "/proc/kallsyms"
_BUILD_ID = b"0 # "  # begins a line of to_bytes() that no reader takes for a symbol
_HEXADECIMAL = rb"[0-9a-f]{2,128}"
_KERNEL = "[kernel]"
_NAMED = frozenset(b"tTwWdDbBrRvV")  # types of code and data symbols, as in nm(1)
# Maximum bytes from a symbol to an address that is still part of it: the file has no sizes, and
# sections have gaps of megabytes and more between them
_FARTHEST = 1 << 20
_MAX_DUMP = 256 << 20
_MAX_LINES = 1 << 22


_EVENT_CALLER = "__traceiter_"
_PROGRAM = "bpf_prog_"  # symbols of loaded BPF programs: bpf_prog_TAG_NAME
#: What the kernel calls programs through: raw tracepoints, fentry, perf events.
_CALLERS = (
    *("bpf_trace_run", "__bpf_trace_", "bpf_trampoline_", "bpf_dispatcher_", _EVENT_CALLER),
    *("trace_call_bpf", "perf_call_bpf_", "perf_trace_run_bpf_", "__bpf_prog_"),
)


def address_of(name: bytes) -> int | None:
    """Return the address of a symbol of the running kernel; None if it is not shown."""
    try:
        with open(KALLSYMS, "rb") as file:  # noqa: PTH123 - avoids importing pathlib
            data = file.read()
    except OSError:
        return None
    found = re.search(rb"^([0-9a-f]+) \w " + re.escape(name) + rb"(?:\t.*)?$", data, re.MULTILINE)
    return (int(found[1], 16) or None) if found else None


class KernelSymbols:
    """The symbols of a kernel.

    Args:
        data: the contents of /proc/kallsyms.
        build_id: returns the build ID of a module, or of the kernel ("").

    Attributes:
        notices: warnings that say why there are no symbols.
    """

    def __init__(self, data: bytes, build_id: Callable[[str], str] | None = None) -> None:
        self.notices: list[str] = []
        self._rows = _symbols(data)
        self._build_ids = _build_ids(data)
        self._find_build_id = build_id
        self._starts = [row[0] for row in self._rows]
        if not self._rows:
            self.notices.append(
                "kernel addresses stay numbers: /proc/kallsyms shows none of them "
                "(kernel.kptr_restrict; needs CAP_SYSLOG)"
            )

    @classmethod
    def running(cls) -> KernelSymbols:
        """Return the symbols of the running kernel; none if /proc/kallsyms cannot be read."""
        from usdt.btf.kernel_files import running_build_id  # noqa: PLC0415 - only for stacks

        try:
            with open(KALLSYMS, "rb") as file:  # noqa: PTH123 - avoids importing pathlib
                return cls(file.read(), running_build_id)
        except OSError:
            return cls(b"")

    def frame(self, address: int) -> Frame:
        """Return the frame of an address."""
        return self._frame(address, address)

    def frames(self, addresses: Sequence[int]) -> list[Frame]:
        """Return the frames of a stack, innermost first, from the probed function on.

        All but the first address are return addresses. The frames of the program that records the
        stack, and of what the kernel calls it through, are left out.
        """
        found = [
            self._frame(address, address - 1 if depth else address)
            for depth, address in enumerate(addresses)
        ]
        return found[_frames_of_program(found) :]

    def _frame(self, address: int, within: int) -> Frame:
        # If a function ends in a call, its return address is past the function's end.
        found = bisect.bisect_right(self._starts, within) - 1
        if found < 0:
            return Frame(address)
        start, name = self._rows[found]
        if within - start > _FARTHEST:
            return Frame(address)
        while found and self._rows[found - 1][0] == start:
            found -= 1
            name = self._rows[found][1]
        symbol, _, field = name.partition(b"\t")
        module = _module_name(field)
        text = symbol.decode("utf-8", "replace")
        return Frame(address, text, address - start, module, kernel_id=self._build_id(module))

    def _build_id(self, module: str) -> str:
        found = self._build_ids.get(module)
        if found is None:
            found = ""
            if self._find_build_id is not None:
                found = self._find_build_id("" if module == _KERNEL else module.strip("[]"))
            self._build_ids[module] = found
        return found

    def to_bytes(self) -> bytes:
        """Return all symbols, compressed, for a recording; :meth:`from_bytes` reads them."""
        lines = [b"%x T %s" % row for row in self._rows]
        modules = sorted({_module_name(name.partition(b"\t")[2]) for _, name in self._rows})
        lines += [
            _BUILD_ID + f"{build_id}\t{module}".encode()
            for module in modules
            if (build_id := self._build_id(module))
        ]
        return zlib.compress(b"\n".join(lines), 1)

    @classmethod
    def from_bytes(cls, data: bytes) -> KernelSymbols:
        """Return symbols from the bytes of to_bytes().

        Raises:
            ValueError: the bytes are damaged.
        """
        inflate = zlib.decompressobj()
        try:
            return cls(inflate.decompress(data, _MAX_DUMP))
        except zlib.error as err:
            raise ValueError(f"damaged kernel symbols: {err}") from err


def _frames_of_program(frames: list[Frame]) -> int:
    # Return the number of frames, at the beginning, of the program that records the stack. Its
    # symbol is missing if net.core.bpf_jit_kallsyms is 0, for who may not see it, and once it is
    # unloaded: then it has no name, or that of what lies before it, be it a module or the kernel's
    # bpf_dispatcher_xdp. Of an event's program the kernel records none, but of what calls it the
    # last.
    if not frames:
        return 0
    first = frames[0]
    if first.symbol.startswith(_EVENT_CALLER):
        return 1
    if first.module == _KERNEL:
        return 0
    count = 1
    while count < len(frames) and frames[count].symbol.startswith(_CALLERS):
        count += 1
    return count if first.symbol.startswith(_PROGRAM) or count > 1 else 0


def _module_name(field: bytes) -> str:
    return field.decode("utf-8", "replace").strip() or _KERNEL


def _build_ids(data: bytes) -> dict[str, str]:
    # Returns the build IDs by module that to_bytes() has put behind the symbols.
    found: dict[str, str] = {}
    at = data.find(b"\n" + _BUILD_ID)
    for line in data[at + 1 :].split(b"\n", _MAX_LINES) if at >= 0 else ():
        build_id, _, module = line.removeprefix(_BUILD_ID).partition(b"\t")
        if line.startswith(_BUILD_ID) and re.fullmatch(_HEXADECIMAL, build_id):
            found[_module_name(module)] = build_id.decode()
    return found


def _symbols(data: bytes) -> list[tuple[int, bytes]]:
    # Returns (address, name and module), sorted by address; skips malformed lines.
    found = []
    for line in data.split(b"\n", _MAX_LINES):
        address, _, rest = line.partition(b" ")
        if rest[:1] and rest[0] in _NAMED and rest[1:2] == b" ":
            try:
                value = int(address, 16)
            except ValueError:
                continue
            if value:
                found.append((value, rest[2:]))
    found.sort(key=lambda row: row[0])  # stable: of equal addresses, the first in the file is used
    return found
