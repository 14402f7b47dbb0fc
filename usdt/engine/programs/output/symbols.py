"""Names for addresses, stacks, users and cgroups, looked up when they are shown."""

from __future__ import annotations

import functools
import struct
import time
from typing import TYPE_CHECKING

from usdt.base.errors import TracingError
from usdt.cgroups.known import KnownCgroups
from usdt.cgroups.labels import CgroupName
from usdt.engine.language.tree import StackKind
from usdt.engine.output.kernel_symbols import KernelSymbols

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from usdt.bpf.maps import Map
    from usdt.engine.output.frames import Frame
    from usdt.engine.output.stacks import CodeSource, UserSymbols
    from usdt.engine.programs.types import StackType
    from usdt.engine.walks.walked import StackAddresses
    from usdt.tracefs.format import Flags

__all__ = ("LiveSymbols",)

_SECOND = 1_000_000_000


class LiveSymbols:
    """Names on this machine; see :class:`usdt.engine.programs.output.values.Symbols`.

    Args:
        user: makes the source of symbols of processes, when it is first needed.
        stacks: returns the map that has stacks of a type.
        system_calls: returns the numbers of system calls by name.
    """

    def __init__(
        self,
        user: Callable[[], UserSymbols],
        stacks: Callable[[StackType], Map],
        system_calls: Callable[[], Mapping[str, int]],
    ) -> None:
        self._make_user = user
        self._user: UserSymbols | None = None
        self._kernel: KernelSymbols | None = None
        self._cgroups: KnownCgroups | None = None
        self._stacks = stacks
        self._system_calls = system_calls
        self._names_of_calls: dict[int, str] | None = None
        self._offset = time.time_ns() - time.clock_gettime_ns(time.CLOCK_MONOTONIC)

    def _kernel_symbols(self) -> KernelSymbols:
        if self._kernel is None:
            self._kernel = KernelSymbols.running()
        return self._kernel

    def _user_symbols(self) -> UserSymbols:
        if self._user is None:
            self._user = self._make_user()
        return self._user

    def observe(self, pids: Sequence[int]) -> None:
        """Record the mappings of processes, before they end."""
        user = self._user_symbols()
        for pid in pids:
            user.observe(pid)
        user.look()

    def kernel(self, address: int) -> str:
        """Return the function or variable of the kernel that an address is in, for ksym()."""
        return self._kernel_symbols().frame(address).symbol or _digits(address)

    def user(self, address: int, pid: int) -> str:
        """Return the function or variable of a process that an address is in, for usym()."""
        return self._user_symbols().frame(pid, address).symbol or _digits(address)

    def stack(self, type_: StackType, number: int, pid: int) -> Sequence[str]:
        """Return the frames of a stack; none if the kernel recorded none.

        The last line of one that was walked says why it ends, if that is not at its outermost one.
        """
        found = self._addresses(type_, number)
        addresses = found.addresses
        if type_.mode == "raw":
            return [f"{one:x}" for one in addresses]
        if type_.kind is StackKind.KERNEL:
            frames = self._kernel_symbols().frames(addresses)
        else:
            frames = self._user_symbols().frames(pid, addresses, found.exact)
        end = [f"({found.reason})"] if found.reason else []
        named = zip(frames, addresses, strict=False)
        if type_.mode == "perf":
            return [*(f"{address:x} {_named(one, address)}" for one, address in named), *end]
        return [*(_named(one, address) for one, address in named), *end]

    def _addresses(self, type_: StackType, number: int) -> StackAddresses:
        from usdt.engine.walks.walked import StackAddresses, walked_addresses  # noqa: PLC0415 - few programs show stacks

        if number < 0:
            return StackAddresses()
        key = struct.pack("=Q" if type_.walked else "=I", number)
        data = self._stacks(type_).get(key) or b""
        if type_.walked:
            return walked_addresses(data)
        return StackAddresses(tuple(one for (one,) in struct.iter_unpack("=Q", data) if one))

    def code(self) -> CodeSource | None:
        """Return what knows the code of running processes; None if nothing does."""
        from usdt.engine.output.stacks import CodeSource  # noqa: PLC0415 - few programs walk

        user = self._user_symbols()
        return user if isinstance(user, CodeSource) else None

    def user_name(self, number: int) -> str:
        """Return the name of a user."""
        import pwd  # noqa: PLC0415 - few programs show users

        try:
            return pwd.getpwuid(number).pw_name
        except KeyError:
            return str(number)

    def cgroup_path(self, number: int) -> str:
        """Return the path of a cgroup behind its hierarchy, as bpftrace does."""
        if self._cgroups is None:
            self._cgroups = KnownCgroups()
        path = self._cgroups.name(CgroupName.PATH, number)
        return f"unified:{path}" if path else str(number)

    def system_call(self, number: int) -> str:
        """Return the name of a system call."""
        if self._names_of_calls is None:
            self._names_of_calls = {at: name for name, at in self._system_calls().items()}
        return self._names_of_calls.get(number & 0xFFFF_FFFF, "Unknown syscall")

    def allocation_flags(self, value: int) -> str:
        """Return the names of flags of allocations; in digits if the kernel shows none.

        They are in the format of a tracepoint: their bits depend on the kernel.
        """
        names = _allocation_flags()
        if names is None or not value:
            return hex(value) if value else "0"
        return names.show(value)

    def time(self, nanoseconds: int, form: str) -> str:
        """Return a time of CLOCK_MONOTONIC in the form of strftime(); ``%f`` is microseconds."""
        return time_text(nanoseconds + self._offset, form)

    def close(self) -> None:
        """Free all resources."""
        for one in (self._user, self._cgroups):
            if one is not None:
                one.close()


@functools.cache
def _allocation_flags() -> Flags | None:
    from usdt.tracefs.format import Flags, FormatError, named_fields, parse_format  # noqa: PLC0415
    from usdt.tracefs.mount import read_format  # noqa: PLC0415 - few programs show such flags

    try:
        form = parse_format(read_format("kmem", "kmalloc"))
    except (FormatError, OSError, TracingError):
        return None
    found = named_fields(form).get("gfp_flags")
    return found if isinstance(found, Flags) else None


def time_text(nanoseconds: int, form: str) -> str:
    """Return a time since 1970 in the form of strftime(); ``%f`` is microseconds."""
    seconds, rest = divmod(nanoseconds, _SECOND)
    return time.strftime(form.replace("%f", f"{rest // 1000:06d}"), time.localtime(seconds))


def _digits(address: int) -> str:
    return f"{address:#x}" if address else "0"  # as bpftrace does


def _named(frame: Frame, address: int) -> str:
    return f"{frame.symbol}+{frame.offset}" if frame.symbol else f"{address:#x}"
