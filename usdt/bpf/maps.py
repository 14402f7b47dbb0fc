"""Maps: specs and objects; batch operations, if the kernel has them."""

from __future__ import annotations

import errno
import functools
import os
import struct
from typing import TYPE_CHECKING, Self

from usdt.base.closeable import FD, Closeable
from usdt.base.errors import NotSupported, SyscallError, TargetError
from usdt.base.frozen import frozen
from usdt.bpf._syscall import bpf, bpf_attribute, prlimit_memlock
from usdt.bpf._uapi import ENOTSUPP, Command, MapType

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ("Map", "MapSpec", "parse_cpu_list", "possible_cpus", "raise_memlock", "read_cpu_list")

_PER_CPU = (MapType.PERCPU_HASH, MapType.PERCPU_ARRAY, MapType.LRU_PERCPU_HASH)
_ARRAYS = (MapType.ARRAY, MapType.PERCPU_ARRAY)
_UNBOUNDED = 1 << 62
_BATCH = 512
_MANY = 256  # most rows that are read one by one
_INFO = struct.Struct("=IIIIII16s")  # struct bpf_map_info: type, id, sizes, entries, flags, name
_NOEXIST = 1  # BPF_NOEXIST
_NO_BATCHES = (errno.EINVAL, errno.EOPNOTSUPP, ENOTSUPP)  # an old kernel, or not this map type
# Kernels before commit d5299b67dd59 ("bpf: Memcg-based memory accounting for bpf maps")
# (in v5.11) charge maps to RLIMIT_MEMLOCK, and return EPERM when it is exceeded.
_MEMLOCK = 1 << 40


@frozen
class MapSpec:
    """The specification of a map: a value, made and tested without a kernel.

    Attributes:
        type: the map type.
        key_size, value_size: in bytes; 0 for a ring buffer.
        entries: maximum number of entries; for a ring buffer its size in bytes.
        name: up to 15 letters, digits, ``_`` and ``.``, shown by bpftool.
        flags: BPF_F_… of map creation.
    """

    type: MapType
    key_size: int
    value_size: int
    entries: int
    name: str = ""
    flags: int = 0

    def create(self, inner: Map | None = None) -> Map:
        """Create the map; raise RLIMIT_MEMLOCK if the kernel needs it.

        Args:
            inner: a map like those that an array of maps has.

        Raises:
            NotSupported: the kernel has no maps of this type.
            SyscallError: any other error of the kernel.
        """
        try:
            number = self._create(inner)
        except SyscallError as err:
            if (
                err.errno == errno.EINVAL
                and self.type is MapType.RINGBUF
                and _page_sized(self.entries)
            ):
                raise NotSupported("the BPF ring buffer", (5, 8)) from err
            if err.errno != errno.EPERM or not raise_memlock():
                raise
            number = self._create(inner)
        return Map(self, FD(number))

    def _create(self, inner: Map | None) -> int:
        sizes = (self.key_size, self.value_size, self.entries)
        other = 0 if inner is None else inner.fd.fileno()
        fields = (self.type, *sizes, self.flags, other, 0, self.name.encode()[:15])
        return bpf(Command.MAP_CREATE, "IIIIIII16s", *fields)


class Map(Closeable):
    """A map in the kernel; a context manager.

    Keys and values are bytes of exactly the spec's sizes. The value of a per-CPU map has one slot
    for each possible CPU, each padded to a multiple of eight bytes.

    Raises:
        ValueError: a key or value of another size.
        SyscallError: the kernel refuses; E2BIG: the map is full.
        TargetError: from_fd() and from_pin(): no map is there.

    Examples:
        >>> spec = usdt.bpf.MapSpec(usdt.bpf.MapType.HASH, key_size=4, value_size=8, entries=1024)
        >>> with spec.create() as counts:
        ...     counts.set(b"key1", b"value..1")
        ...     dict(counts.items())
        {b'key1': b'value..1'}
    """

    def __init__(self, spec: MapSpec, fd: FD) -> None:
        self.spec = spec
        self.fd = fd

    @classmethod
    def from_fd(cls, number: int) -> Self:
        """Return the map that a descriptor refers to, by a duplicate of the descriptor.

        Raises:
            TargetError: it is not a descriptor of a map, or the map's type is unknown here.
        """
        from usdt.bpf.objects import dup_fd  # noqa: PLC0415 - rarely needed

        return cls._from(dup_fd(number, "map"))

    @classmethod
    def from_pin(cls, path: str | os.PathLike[str]) -> Self:
        """Return a map pinned in bpffs.

        Raises:
            TargetError: nothing is pinned there, or not a map.
        """
        from usdt.bpf.objects import open_pin  # noqa: PLC0415 - rarely needed

        return cls._from(open_pin(path, "map"))

    @classmethod
    def _from(cls, fd: FD) -> Self:
        try:
            from usdt.bpf.objects import object_info  # noqa: PLC0415 - rarely needed

            return cls(_described(object_info(fd, _INFO.size)), fd)
        except BaseException:
            fd.close()
            raise

    @property
    def id(self) -> int:
        """The map's ID, as bpftool shows it."""
        from usdt.bpf.objects import object_info  # noqa: PLC0415 - rarely needed

        return int(_INFO.unpack(object_info(self.fd, _INFO.size))[1])

    @property
    def value_size(self) -> int:
        """Size in bytes of the value that a lookup returns."""
        if self.spec.type not in _PER_CPU:
            return self.spec.value_size
        return -(-self.spec.value_size // 8) * 8 * possible_cpus()

    def get(self, key: bytes) -> bytes | None:
        """Return the value of ``key``, or None."""
        self._check(key)
        value = bytearray(self.value_size)
        try:
            bpf(Command.MAP_LOOKUP_ELEM, "I4xPPQ", self.fd.fileno(), key, value, 0)
        except SyscallError as err:
            if err.errno == errno.ENOENT:
                return None
            raise
        return bytes(value)

    def set(self, key: bytes, value: bytes) -> None:
        """Write one entry."""
        self._check(key, value)
        bpf(Command.MAP_UPDATE_ELEM, "I4xPPQ", self.fd.fileno(), key, value, 0)

    def add(self, key: bytes, value: bytes) -> bool:
        """Write an entry unless its key exists; return whether it was written."""
        self._check(key, value)
        try:
            bpf(Command.MAP_UPDATE_ELEM, "I4xPPQ", self.fd.fileno(), key, value, _NOEXIST)
        except SyscallError as err:
            if err.errno == errno.EEXIST:
                return False
            raise
        return True

    def set_many(self, entries: Iterable[tuple[bytes, bytes]]) -> None:
        """Write entries, in one system call if the kernel can (Linux 5.6).

        Raises:
            SyscallError: the kernel refuses; some entries may have been written.
        """
        rows = list(entries)
        for key, value in rows:
            self._check(key, value)
        if len(rows) > 1 and self._set_batch(rows):
            return
        for key, value in rows:
            self.set(key, value)

    def _set_batch(self, rows: list[tuple[bytes, bytes]]) -> bool:
        keys, values = (b"".join(column) for column in zip(*rows, strict=True))
        try:
            bpf(
                Command.MAP_UPDATE_BATCH,
                "PPPPIIQQ",
                *(None, None, keys, values, len(rows), self.fd.fileno(), 0, 0),
            )
        except SyscallError as err:
            if err.errno not in _NO_BATCHES:
                raise
            return False
        return True

    def delete(self, key: bytes) -> bool:
        """Remove one entry; return whether it existed."""
        self._check(key)
        try:
            bpf(Command.MAP_DELETE_ELEM, "I4xPPQ", self.fd.fileno(), key, None, 0)
        except SyscallError as err:
            if err.errno == errno.ENOENT:
                return False
            raise
        return True

    def keys(self) -> Iterator[bytes]:
        """Yield every key; entries added or removed meanwhile may or may not be among them."""
        key: bytes | None = None
        following = bytearray(self.spec.key_size)
        for _ in range(self.spec.entries):
            try:
                bpf(Command.MAP_GET_NEXT_KEY, "I4xPP", self.fd.fileno(), key, following)
            except SyscallError as err:
                if err.errno == errno.ENOENT:
                    return
                raise
            key = bytes(following)
            yield key

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield every entry, read in batches if the kernel can (Linux 5.6; per-CPU arrays 5.13)."""
        key_size, value_size = self.spec.key_size, self.value_size
        for keys, values in self.batches():
            for index in range(len(keys) // key_size):
                yield (
                    keys[index * key_size : (index + 1) * key_size],
                    values[index * value_size : (index + 1) * value_size],
                )

    def first(self, number: int) -> Iterator[tuple[bytes, bytes]]:
        """Yield at least the first rows of an array; if there are many, all are read in batches."""
        if number > _MANY:
            yield from self.items()
            return
        for row in range(number):
            key = struct.pack("=I", row)
            yield key, self.get(key) or b""

    def batches(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield the keys of some entries and their values, each one after the other, until the end.

        Reading is that of :meth:`items`, without an object for each entry.
        """
        try:
            yield from self._batches()
        except SyscallError as err:
            if err.errno not in _NO_BATCHES:
                raise
            for key in self.keys():
                value = self.get(key)
                if value is not None:
                    yield key, value

    def _check(self, key: bytes, value: bytes | None = None) -> None:
        # The kernel takes the sizes from the map, and would read beyond shorter bytes.
        if len(key) != self.spec.key_size:
            raise ValueError(f"map key: {self.spec.key_size} bytes expected, {len(key)} given")
        if value is not None and len(value) != self.value_size:
            raise ValueError(f"map value: {self.value_size} bytes expected, {len(value)} given")

    def _batches(self) -> Iterator[tuple[bytes, bytes]]:
        position: bytes | None = None
        size = min(_BATCH, self.spec.entries)
        # The cursor of an array wraps around at the end, so count the entries.
        left = self.spec.entries if self.spec.type in _ARRAYS else _UNBOUNDED
        while left > 0:
            following = bytearray(max(4, self.spec.key_size))
            keys = bytearray(self.spec.key_size * size)
            values = bytearray(self.value_size * size)
            number, done = self._batch(position, following, keys, values, size)
            yield (
                bytes(keys[: number * self.spec.key_size]),
                bytes(values[: number * self.value_size]),
            )
            if done:
                return
            left -= number
            position = bytes(following)

    def _batch(
        self,
        position: bytes | None,
        following: bytearray,
        keys: bytearray,
        values: bytearray,
        size: int,
    ) -> tuple[int, bool]:
        # One call: (number of entries, whether they were the last).
        result, number, attribute = bpf_attribute(
            Command.MAP_LOOKUP_BATCH,
            "PPPPIIQQ",
            *(position, following, keys, values, size, self.fd.fileno(), 0, 0),
        )
        # ENOENT: the last batch; its size is in the attribute as for all others.
        if result == -1 and number != errno.ENOENT:
            raise SyscallError(number, "bpf(BPF_MAP_LOOKUP_BATCH)")
        return int(struct.unpack_from("=I", attribute, 32)[0]), result == -1

    def close(self) -> None:
        """Close the descriptor; the kernel frees the map when no program uses it."""
        self.fd.close()


@functools.cache
def possible_cpus() -> int:
    """Return the number of slots of a per-CPU value."""
    return len(read_cpu_list("possible"))


def read_cpu_list(name: str) -> list[int]:
    """Return the CPUs in a list below /sys/devices/system/cpu: "online" or "possible"."""
    with open(f"/sys/devices/system/cpu/{name}") as file:  # noqa: PTH123 - pathlib costs an import
        return parse_cpu_list(file.read())


def parse_cpu_list(text: str) -> list[int]:
    """Return the CPUs that a list of ranges names, such as "0-3,8"."""
    ranges = [part.partition("-") for part in text.strip().split(",")]
    return [cpu for first, _, last in ranges for cpu in range(int(first), int(last or first) + 1)]


def raise_memlock() -> bool:
    """Raise RLIMIT_MEMLOCK; return False, without an error, if that is refused."""
    try:
        prlimit_memlock(_MEMLOCK)
    except SyscallError:
        return False
    return True


def _described(info: bytes) -> MapSpec:
    kind, _, key_size, value_size, entries, flags, name = _INFO.unpack(info)
    if kind not in set(MapType):
        raise TargetError(f"a BPF map of type {kind}, which is unknown here")
    text = name.split(b"\0", 1)[0].decode("ascii", "replace")
    return MapSpec(MapType(kind), key_size, value_size, entries, text, flags)


def _page_sized(size: int) -> bool:
    page = os.sysconf("SC_PAGE_SIZE")
    return size >= page and size & (size - 1) == 0
