"""``usdt.attach_program``: programs of the caller on probes of any kind."""

from __future__ import annotations

import contextlib
import errno
from typing import TYPE_CHECKING

from usdt.base.closeable import Closeable
from usdt.base.errors import (
    LanguageError,
    NotSupported,
    ProbeNotFound,
    SyscallError,
    TargetError,
    TracingError,
)
from usdt.base.frozen import replace
from usdt.bpf import features
from usdt.bpf._uapi import AttachType, ProgType
from usdt.bpf.link import (
    UprobeMethod,
    UprobeSite,
    attach_raw_tracepoint,
    attach_tracepoint,
    close_links,
)
from usdt.bpf.program import Program, ProgramSpec
from usdt.engine.language import parse_probe
from usdt.libbpf.handles import as_program, wrong_type
from usdt.libbpf.links import explained, link_sites, newest_method
from usdt.libbpf.resolve import files_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from usdt.bpf.link import Link
    from usdt.bpf.maps import Map
    from usdt.engine.language.tree import ProbeText
    from usdt.engine.runtime.attach.attach_points import AttachPoint
    from usdt.libbpf.handles import ProgramLike

__all__ = ("ProgramLink", "attach_program")

_TYPES = {
    "usdt": ProgType.KPROBE,
    "uprobe": ProgType.KPROBE,
    "kprobe": ProgType.KPROBE,
    "tracepoint": ProgType.TRACEPOINT,
    "rawtp": ProgType.RAW_TRACEPOINT,
}
_IN_FILES = ("usdt", "uprobe")
_OTHER_KINDS = {
    "syscall": "attach to its tracepoint: tracepoint:syscalls:sys_enter_{0}",
    "fentry": "such a program is loaded for one function; attach to kprobe:{0}",
}


class ProgramLink(Closeable):
    """An attached program; a context manager. Closing it detaches the program.

    The program stays attached until then, or until this process ends, however it ends.

    Attributes:
        sites: number of attached sites.
        via: the attach method of sites of files: ``uprobe_multi``, ``perf-link`` or
            ``perf-event``; "" for probes of the kernel.
        notices: messages about sites that are left out.
        closed: whether it is detached.

    Examples:
        >>> with usdt.attach_program(program, "uprobe:libc:malloc", pid=1234) as link:
        ...     time.sleep(10)
    """

    def __init__(
        self, links: Sequence[Link], sites: int, via: str = "", notices: tuple[str, ...] = ()
    ) -> None:
        self.sites = sites
        self.via = via
        self.notices = notices
        self.closed = False
        self._links = links

    def close(self) -> None:
        """Detach; idempotent."""
        self.closed = True
        close_links(self._links)


def attach_program(
    program: ProgramSpec | ProgramLike,
    probe: str,
    *,
    pid: int | None = None,
    cookie: int = 0,
    maps: Mapping[str, Map] | None = None,
) -> ProgramLink:
    """Attach a BPF program of your own to a probe.

    Args:
        program: a :class:`usdt.bpf.ProgramSpec`, which is loaded for the newest attach method; or
            a loaded program: a :class:`usdt.bpf.Program`, a file descriptor, the path of a pin, or
            an object with a descriptor ``fd``, such as a function of bcc.
        probe: a USDT probe, ``uprobe:TARGET:FUNCTION`` (both may be patterns), ``kprobe:FUNCTION``,
            ``tracepoint:CATEGORY:EVENT`` or ``rawtp:EVENT``. ``(return)`` behind a function means
            its return; other items are the program's own business.
        pid: the only process to attach in. Without it, every process that runs the file. Programs
            of the kernel's probes run for all processes, and compare the process ID themselves.
        cookie: the value of ``bpf_get_attach_cookie()``.
        maps: the maps of a :class:`usdt.bpf.ProgramSpec`, by the names in its code.

    Raises:
        LanguageError: the probe is not valid, or of a kind that takes no program.
        ProbeNotFound: there is no such probe.
        TargetError: there is no such process, file or program, or the program has another type
            than the probe needs: KPROBE for functions and USDT probes, TRACEPOINT, RAW_TRACEPOINT.
        NotSupported: a cookie was given, and the kernel has none there (Linux 5.15; 6.10 for
            ``rawtp``).
        VerifierError: the verifier rejects the program.
        SyscallError: any other error of the kernel. Nothing stays attached.

    Examples:
        >>> with usdt.attach_program(spec, "uprobe:libc:malloc", pid=1234, maps={"hits": hits}):
        ...     time.sleep(1)
    """
    _check_arguments(probe, pid, cookie)
    request = parse_probe(probe)
    on_return = _on_return(request)
    if request.kind not in _TYPES:
        hint = _OTHER_KINDS[request.kind].format(request.name)
        raise LanguageError(request.text, 0, f"no program attaches to {request.kind}; {hint}")
    if pid is not None and request.kind not in _IN_FILES:
        raise TargetError(
            f"pid {pid}: programs of the kernel's probes run for all processes; compare "
            "bpf_get_current_pid_tgid() in the program"
        )
    with _loaded(program, request, maps) as loaded:
        if request.kind in _IN_FILES:
            return _attach_in_files(loaded, request, pid or 0, cookie, on_return=on_return)
        made = _attach_in_kernel(loaded, request, cookie, on_return=on_return)
        return ProgramLink([made], 1)


def _check_arguments(probe: object, pid: object, cookie: int) -> None:
    if not isinstance(probe, str):
        raise TypeError(f"probe {probe!r}: expected a string, as in 'uprobe:libc:malloc'")
    if pid is not None and (not isinstance(pid, int) or isinstance(pid, bool)):
        raise TypeError(f"pid {pid!r}: expected the ID of a process, an integer")
    if not 0 <= cookie < 1 << 64:
        raise ValueError(f"cookie {cookie}: expected an unsigned number of 64 bits")


def _no_cookies() -> NotSupported:
    return NotSupported("a BPF cookie", (5, 15))


def _on_return(request: ProbeText) -> bool:
    if not request.items:
        return False
    if [item.text for item in request.items] != ["return"]:
        text = "a program takes no items but return; it reads its values itself"
        raise LanguageError(request.text, len(request.pattern), text)
    if request.kind not in ("uprobe", "kprobe"):
        raise LanguageError(request.text, 0, f"a probe of kind {request.kind} has no return")
    return True


def _loaded(
    given: ProgramSpec | ProgramLike, request: ProbeText, maps: Mapping[str, Map] | None
) -> Program:
    kind = _TYPES[request.kind]
    if not isinstance(given, ProgramSpec):
        if given is None:
            raise TypeError("program None: expected a ProgramSpec or a loaded program")
        if maps is not None:
            raise TracingError("maps belong to a ProgramSpec; a loaded program has its own")
        return as_program(given, kind)
    if given.type is not kind:
        raise wrong_type(given.type, kind)
    missing = {name for name, _ in given.code.maps.values()} - (maps or {}).keys()
    if missing:
        raise TracingError(f"map {min(missing)!r}: the program needs it, and maps= has it not")
    multi = request.kind in _IN_FILES and features.have_uprobe_multi()
    if multi and given.attach_type is AttachType.NONE:
        given = replace(given, attach_type=AttachType.TRACE_UPROBE_MULTI)
    return given.load(dict(maps or {}))


# ------------------------------------------------------------ files


def _attach_in_files(
    program: Program,
    request: ProbeText,
    pid: int,
    cookie: int,
    *,
    on_return: bool,
) -> ProgramLink:
    points, refused = _points(request, pid)
    if not points:
        raise refused[0]
    via = newest_method(program)
    if cookie and via is UprobeMethod.PERF_EVENT:
        raise _no_cookies()
    files: dict[tuple[str, str], dict[UprobeSite, None]] = {}
    for point in points:
        site = UprobeSite(point.fastest_offset, point.ref_ctr_offset, cookie)
        files.setdefault((point.path, point.open_path), {})[site] = None  # each only once
    links: list[Link] = []
    with contextlib.ExitStack() as undo:
        undo.callback(lambda: close_links(links))
        for (path, open_path), sites in files.items():
            try:
                link_sites(links, program, via, open_path, [*sites], pid=pid, on_return=on_return)
            except TracingError as err:
                raise explained(err, f"attach to {request.pattern} in {path}", pid) from err
        undo.pop_all()
    notices = tuple(f"left out: {error}" for error in refused)
    return ProgramLink(links, sum(map(len, files.values())), via.value, notices)


def _points(request: ProbeText, pid: int) -> tuple[list[AttachPoint], list[TracingError]]:
    files = list(files_of(request.path, pid))
    if request.kind == "uprobe":
        from usdt.uprobes.provider import FunctionRequest  # noqa: PLC0415 - not for USDT

        functions = FunctionRequest(request)
        return [
            point for path, open_path in files for point in functions.points(path, open_path, pid)
        ], []
    return _usdt_points(request, files, pid)


def _usdt_points(
    request: ProbeText, files: Sequence[tuple[str, str]], pid: int
) -> tuple[list[AttachPoint], list[TracingError]]:
    from usdt.probes.matching import matching, missing_probe  # noqa: PLC0415
    from usdt.probes.probe import read_probes  # noqa: PLC0415 - not for functions
    from usdt.probes.sites import attachable  # noqa: PLC0415

    points: list[AttachPoint] = []
    refused: list[TracingError] = []
    names: dict[str, None] = {}
    for path, open_path in files:
        probes = read_probes(path, open_path=open_path).probes
        names.update(dict.fromkeys(probe.full_name for probe in probes))
        wanted = matching(request, probes)
        if wanted:
            found = attachable(wanted, path, open_path, pid, ())
            points += found[0]
            refused += found[1]
    if not points and not refused:
        where = files[0][0] if request.path is not None else f"process {pid}"
        wanted_name = f"{request.provider}:{request.name}"
        raise ProbeNotFound(missing_probe(where, wanted_name, list(names)))
    return points, refused


# ------------------------------------------------------------ the kernel


def _attach_in_kernel(
    program: Program, request: ProbeText, cookie: int, *, on_return: bool
) -> Link:
    if any(letter in request.name + request.provider for letter in "*?["):
        raise LanguageError(request.text, 0, "a program attaches to one probe of the kernel")
    if cookie and not features.have_cookies():
        raise _no_cookies()
    if request.kind == "rawtp":
        if cookie and not features.have_raw_cookies():
            raise NotSupported("the cookie of a raw tracepoint", (6, 10))
        return attach_raw_tracepoint(program, request.name, cookie=cookie)
    if request.kind == "tracepoint":
        given = cookie if features.have_cookies() else None
        return attach_tracepoint(program, _event_number(request), cookie=given)
    return _attach_kprobe(program, request, cookie, on_return=on_return)


def _event_number(request: ProbeText) -> int:
    from usdt.tracefs.mount import tracefs  # noqa: PLC0415 - only for tracepoints

    path = tracefs() / "events" / request.provider / request.name / "id"
    try:
        return int(path.read_text())
    except OSError as err:
        raise ProbeNotFound(
            f"no tracepoint {request.provider}:{request.name} (list them with: kprobe list "
            "'tracepoint:*')"
        ) from err


def _attach_kprobe(program: Program, request: ProbeText, cookie: int, *, on_return: bool) -> Link:
    from usdt.bpf.kprobes import KprobeSite, attach_kprobe  # noqa: PLC0415 - only for kprobes

    function, _, offset = request.name.partition("+")
    symbol = f"{request.provider}:{function}" if request.provider else function
    site = KprobeSite(0, symbol, int(offset or "0", 0), cookie)
    try:
        return attach_kprobe(program, site, on_return=on_return, cookies=features.have_cookies())
    except SyscallError as err:
        if err.errno == errno.ENOENT:
            raise ProbeNotFound(
                f"no function {symbol} in the kernel (list them with: kprobe list '*')"
            ) from err
        hints = {
            errno.EADDRNOTAVAIL: "several functions have this name",
            errno.EINVAL: "no probe can be there: kprobe info says why",
        }
        hint = hints.get(err.errno or 0, err.hint)
        raise SyscallError(err.errno or 0, f"attach to kprobe:{request.name}", hint) from err
