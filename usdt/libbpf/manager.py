"""Attach programs of other loaders to USDT probes, as libbpf's USDT manager does.

A program that was compiled with ``usdt.bpf.h`` reads two maps at a hit, whoever loaded it:
``__bpf_usdt_specs`` describes the location of each argument; on kernels without BPF cookies,
``__bpf_usdt_ip_to_spec_id`` maps the address of the hit to its spec. A :class:`Manager` writes both
maps and attaches the program::

    manager = Manager("/sys/fs/bpf/x/__bpf_usdt_specs", "/sys/fs/bpf/x/__bpf_usdt_ip_to_spec_id")
    with manager.attach("/sys/fs/bpf/x/on_gc", "python3.11", "python", "gc__start", cookie=7):
        ...

Spec IDs are integers from 0. Freed IDs are reused, the last freed one first. Within one attachment,
sites with equal argument strings share a spec; attachments share none, because each has its own
cookie. A manager knows only the IDs that it allocated itself: two managers, or libbpf and a
manager, must not write to one map at the same time.
"""

from __future__ import annotations

import contextlib
import errno
import os
import struct
import sys
from typing import TYPE_CHECKING

from usdt.base.closeable import Closeable
from usdt.base.errors import SyscallError, TracingError
from usdt.bpf._uapi import MapType
from usdt.bpf.link import UprobeMethod, UprobeSite, close_links
from usdt.libbpf.handles import as_map, as_program
from usdt.libbpf.links import explained, link_sites, newest_method
from usdt.libbpf.resolve import AttachSpec, addresses_of, collect
from usdt.libbpf.usdt_spec import UsdtSpecLayout, encode_spec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from usdt.bpf.link import Link
    from usdt.bpf.maps import Map
    from usdt.bpf.program import Program
    from usdt.libbpf.handles import MapLike, ProgramLike
    from usdt.libbpf.resolve import AttachSite

__all__ = ("Attachment", "Manager")

_KEY = struct.Struct("=i")
_ID = struct.Struct("=I")


class SpecIds:
    """Allocator of the spec IDs of one map.

    Args:
        limit: number of entries of the map.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._next = 0
        self._returned: list[int] = []

    @property
    def free(self) -> int:
        """The number of free IDs."""
        return self.limit - self._next + len(self._returned)

    def take(self, number: int) -> list[int]:
        """Allocate IDs, the last freed one first; ``number`` must not exceed :attr:`free`."""
        taken = []
        for _ in range(number):
            if self._returned:
                taken.append(self._returned.pop())
            else:
                taken.append(self._next)
                self._next += 1
        return taken

    def release(self, ids: Sequence[int]) -> None:
        """Free IDs, given in the order of their allocation."""
        self._returned += ids


class Attachment(Closeable):
    """Sites attached together; a context manager. Closing it detaches them and frees the IDs.

    Attributes:
        sites: number of attached sites.
        spec_ids: IDs of their specs, in the order of allocation.
        via: the attach method.
        notices: messages about omitted sites and arguments that the program cannot read.

    Examples:
        >>> with manager.attach(program, "python3.11", "python", "gc__start") as attachment:
        ...     attachment.sites, attachment.spec_ids
        (1, (0,))
    """

    def __init__(
        self,
        manager: Manager,
        spec_ids: tuple[int, ...],
        via: UprobeMethod,
        notices: tuple[str, ...],
    ) -> None:
        self.spec_ids = spec_ids
        self.via = via
        self.notices = notices
        self.sites = 0
        self._manager: Manager | None = manager
        self._links: list[Link] = []
        self._ips: list[bytes] = []

    @property
    def closed(self) -> bool:
        """True if it is detached."""
        return self._manager is None

    def close(self) -> None:
        """Detach; idempotent."""
        manager, self._manager = self._manager, None
        if manager is None:
            return
        links, self._links = self._links, []
        try:
            close_links(links)
        finally:
            # The links are closed, so no program reads these entries any more.
            manager.release(self, self._ips)


class Manager(Closeable):
    """A manager of programs that read libbpf's USDT maps; a context manager.

    Args:
        specs: the map ``__bpf_usdt_specs``: a :class:`usdt.bpf.maps.Map`, a file descriptor, the
            path of a pin, or an object with a descriptor ``map_fd``, such as a table of bcc.
        ips: the map ``__bpf_usdt_ip_to_spec_id``; only needed on kernels without BPF cookies.
        via: the attach method; None for the newest that the kernel and the program allow.

    Raises:
        TargetError: an argument is not a map.
        TracingError: the type, keys or values of a map are not those of libbpf.
        SyscallError: the kernel refuses, mostly for lack of privilege.

    Examples:
        >>> with usdt.Manager("/sys/fs/bpf/x/__bpf_usdt_specs") as manager:
        ...     gc = manager.attach("/sys/fs/bpf/x/on_gc", "python3.11", "python", "gc__start")
        ...     gc.sites
        1
    """

    def __init__(
        self,
        specs: MapLike,
        ips: MapLike | None = None,
        *,
        via: UprobeMethod | str | None = None,
    ) -> None:
        self.via = None if via is None else UprobeMethod(via)
        self._attachments: dict[Attachment, None] = {}
        with contextlib.ExitStack() as stack:
            self._specs = as_map(specs)
            stack.callback(self._specs.close)
            self._ips = None if ips is None else as_map(ips)
            if self._ips is not None:
                stack.callback(self._ips.close)
            self.layout = _layout_of(self._specs)
            if self._ips is not None:
                _check_ips(self._ips)
            self._undo = stack.pop_all()
        self._ids = SpecIds(self._specs.spec.entries)

    def attach(
        self,
        program: ProgramLike,
        target: str | os.PathLike[str] | None,
        provider: str,
        name: str,
        *,
        pid: int = 0,
        cookie: int = 0,
        strict: bool = False,
    ) -> Attachment:
        """Attach a program to every site of a probe.

        Args:
            program: a loaded program of type kprobe: a :class:`usdt.bpf.program.Program`, a file
                descriptor, the path of a pin, or an object with a descriptor ``fd``, such as a
                function of bcc.
            target: a path, a library name as the dynamic loader knows it, or a program on PATH;
                None for all files that the process has mapped.
            provider: the exact provider of the probe.
            name: the exact name of the probe.
            pid: the only process to attach in; 0 for every process.
            cookie: the value that ``bpf_usdt_cookie()`` returns.
            strict: refuse the probe, as libbpf does, if a site cannot be attached or an argument
                cannot be expressed. Otherwise omit these, with a message in ``notices``.

        Raises:
            ProbeNotFound: the target has no such probe.
            TargetError: there is no such file, process or program.
            SyscallError: E2BIG if the spec map is too small; EEXIST if two sites with different
                specs have the same address; in strict mode, libbpf's errno; else the kernel's
                errno. Nothing stays attached.
        """
        wanted = AttachSpec(provider, name, pid, cookie, self.layout, strict)
        found = collect(None if target is None else os.fspath(target), wanted)
        with as_program(program) as loaded:
            via = self._attach_method(loaded)
            keys = tuple(dict.fromkeys(site.key for site in found.sites))
            if len(keys) > self._ids.free:
                raise self._full(wanted, found.path, len(keys))
            ids = self._ids.take(len(keys))
            attachment = Attachment(self, tuple(ids), via, found.notices)
            self._attachments[attachment] = None
            try:
                self._attach(attachment, loaded, found.sites, dict(zip(keys, ids, strict=True)))
            except (SyscallError, TracingError) as err:
                attachment.close()
                call = f"attach to {wanted.probe} in {found.path}"
                raise explained(err, call, wanted.pid) from err
            except BaseException:
                attachment.close()
                raise
        return attachment

    def release(self, attachment: Attachment, ips: Sequence[bytes]) -> None:
        """Free the IDs and map entries of a detached attachment, which calls this."""
        self._attachments.pop(attachment, None)
        self._ids.release(attachment.spec_ids)
        if self._ips is not None and not self._ips.fd.closed:
            for key in ips:
                self._ips.delete(key)

    def close(self) -> None:
        """Detach everything. The maps remain; they belong to their loader."""
        for attachment in list(self._attachments):
            attachment.close()
        self._undo.close()

    def _attach_method(self, program: Program) -> UprobeMethod:
        newest = newest_method(program)
        multi = newest is UprobeMethod.UPROBE_MULTI
        via = newest if self.via is None else self.via
        if via is UprobeMethod.UPROBE_MULTI and not multi:
            raise TracingError(
                "attach by uprobe_multi: the program was not loaded for it (expected_attach_type "
                "BPF_TRACE_UPROBE_MULTI), or the kernel has none (Linux 6.6)"
            )
        if via is not UprobeMethod.UPROBE_MULTI and multi:
            raise TracingError(
                f"attach by {via}: the program was loaded for uprobe_multi, and the kernel attaches"
                " it in no other way"
            )
        if via is UprobeMethod.PERF_EVENT and self._ips is None:
            raise TracingError(
                "attach without cookies: the program finds its spec by address, and no map "
                "__bpf_usdt_ip_to_spec_id was given"
            )
        return via

    def _attach(
        self,
        attachment: Attachment,
        program: Program,
        attach_sites: Sequence[AttachSite],
        ids: dict[tuple[str, int], int],
    ) -> None:
        specs = {ids[site.key]: site.spec for site in attach_sites}
        self._specs.set_many(
            (_KEY.pack(number), encode_spec(spec, self.layout)) for number, spec in specs.items()
        )
        if attachment.via is UprobeMethod.PERF_EVENT and self._ips is not None:
            _map_addresses(self._ips, attachment, attach_sites, ids)
        files: dict[tuple[str, int], list[UprobeSite]] = {}
        for attach_site in attach_sites:
            point = attach_site.point
            # Without cookies, the program finds its spec by the address of the note.
            by_address = attachment.via is UprobeMethod.PERF_EVENT
            offset = point.offset if by_address else point.fastest_offset
            site = UprobeSite(offset, point.ref_ctr_offset, ids[attach_site.key])
            files.setdefault((point.open_path, point.pid), []).append(site)
        for (path, pid), sites in files.items():
            # Duplicate notes are one site: the program must not run twice for a hit.
            once = list(dict.fromkeys(sites))
            links = attachment._links  # noqa: SLF001 - a part of it
            link_sites(links, program, attachment.via, path, once, pid=pid)
            attachment.sites += len(once)

    def _full(self, wanted: AttachSpec, path: str, number: int) -> SyscallError:
        return SyscallError(
            errno.E2BIG,
            f"attach to {wanted.probe} in {path}",
            f"its sites need {number} specs, and {self._ids.free} of the map's {self._ids.limit} "
            "are free: make it larger (BPF_USDT_MAX_SPEC_CNT)",
        )


def _map_addresses(
    ips: Map,
    attachment: Attachment,
    attach_sites: Sequence[AttachSite],
    ids: dict[tuple[str, int], int],
) -> None:
    known: dict[int, int] = {}
    for site, address in addresses_of(attach_sites):
        number = ids[site.key]
        if known.get(address) == number:
            continue  # a duplicate note
        key = address.to_bytes(ips.spec.key_size, sys.byteorder)
        if address in known or not ips.add(key, _ID.pack(number)):
            raise SyscallError(
                errno.EEXIST,
                f"address {address:#x} of spec {number}",
                "another site or attachment has this address already",
            )
        known[address] = number
        attachment._ips.append(key)  # noqa: SLF001 - a part of it


def _layout_of(specs: Map) -> UsdtSpecLayout:
    spec = specs.spec
    sizes = [layout.value for layout in UsdtSpecLayout]
    usable = spec.type in (MapType.ARRAY, MapType.HASH) and spec.key_size == _KEY.size
    if not usable or spec.value_size not in sizes:
        raise TracingError(
            f"map {spec.name!r} is no spec map of libbpf's: {spec.type.name} with keys of "
            f"{spec.key_size} and values of {spec.value_size} bytes; keys of 4 and values of "
            f"{' or '.join(map(str, sizes))} expected"
        )
    return UsdtSpecLayout(spec.value_size)


def _check_ips(ips: Map) -> None:
    spec = ips.spec
    if spec.type is not MapType.HASH or spec.key_size not in (4, 8) or spec.value_size != 4:
        raise TracingError(
            f"map {spec.name!r} does not map addresses to spec IDs: {spec.type.name} with keys of "
            f"{spec.key_size} and values of {spec.value_size} bytes; HASH, 8 and 4 expected"
        )
