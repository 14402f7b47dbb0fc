"""Names of kernel functions and variables: /proc/kallsyms and available_filter_functions.

Both are megabytes of text that the kernel generates for every reader. Most callers need one name,
so the text is kept as bytes and searched.
"""

from __future__ import annotations

import errno
import fnmatch
import functools
import os
import re
import threading
from typing import TYPE_CHECKING

from usdt.base.errors import TargetError
from usdt.base.files import load_of_boot, store_of_boot
from usdt.base.frozen import frozen
from usdt.base.text import encoded

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

__all__ = (
    "FtraceFunctions",
    "Kallsyms",
    "KallsymsLoader",
    "KernelSymbol",
    "have_kprobes",
    "kallsyms_loader",
    "read_ftrace_functions",
    "start_loading",
)

_KALLSYMS = "/proc/kallsyms"
_TRACEFS = ("/sys/kernel/tracing", "/sys/kernel/debug/tracing")
_FUNCTIONS = "available_filter_functions"
_CODE = b"tTwW"
_DATA = b"aAbBdDrRvVgGsS"  # as in nm(1)
# Expressions that short commands do not need are compiled where they are used.
_LINE = rb"(?m)^([0-9a-f]+) ([tTwW]) (\S+)(?:\t\[(\S+)\])?$"
# Symbols that are not function entries: cold parts, and the padding before functions.
_NO_ENTRY = r"^__(pfx|cfi)_|\.cold(\.\d+)?$"

# The kernel fills a buffer of less than a page completely, and so each buffer of a vector: one
# readv() reads megabytes without holding Python's lock.
_PIECE = 3072
_PIECES = 1024
_MAX_FOUND = 64  # names whose lines are kept

_KEPT = "kernel.symbols"  # the file
_VERSION = 1  # of its contents
_MAX_KEPT = 32 << 20  # bytes
# Patterns, which may mean functions that no module has, and the names of such functions.
_COMES_AND_GOES = r"[*?[]|(^|:)(bpf_|ftrace_|kprobe_)"


@frozen
class KernelSymbol:
    """A function or variable in /proc/kallsyms.

    Attributes:
        name: its name; may have a suffix of the compiler (``.isra.0``).
        address: its address; 0 if the reader lacks the privilege.
        module: its module; "" for the kernel itself.
    """

    name: str
    address: int
    module: str


class Kallsyms:
    """The functions and variables in the text of /proc/kallsyms."""

    def __init__(self, text: bytes) -> None:
        self._text = text
        self._found: dict[bytes, tuple[re.Match[bytes], ...]] = {}  # by name

    def named(self, name: str) -> list[KernelSymbol]:
        """Return all functions of exactly this name."""
        return self.name_and_variants(name)[0]

    def variants(self, name: str) -> list[KernelSymbol]:
        """Return functions that the compiler derived from one, such as ``NAME.isra.0``."""
        return self.name_and_variants(name)[1]

    def variables(self, name: str) -> list[KernelSymbol]:
        """Return all variables of exactly this name; some kernels have none here.

        Since Linux 7, some sections of variables count as code, but lie after it.
        """
        raw = encoded(name)
        lines = (line for line in self._lines(raw) if line[3] == raw)
        return [_symbol(line) for line in lines if line[2] in _DATA or self._is_data(line)]

    def _is_data(self, line: re.Match[bytes]) -> bool:
        # True for a symbol that counts as code and lies after it. Modules lie elsewhere.
        end, (first, last) = self._ends_of_code
        address = int(line[1], 16)
        return not line[4] and 0 < end <= address and not first <= address < last

    @functools.cached_property
    def _ends_of_code(self) -> tuple[int, tuple[int, int]]:
        # Where the kernel's code ends, and where that of its start begins and ends.
        names = ("_etext", "_sinittext", "_einittext")
        end, first, last = (max((one.address for one in self.named(n)), default=0) for n in names)
        return end, (first, last)

    def variable_names(self, start: str) -> set[str]:
        """Return the names of the variables that begin with some text."""
        kinds = _DATA.decode()
        line = re.compile(rf"^[0-9a-f]+ [{kinds}] ({re.escape(start)}\S*)".encode(), re.MULTILINE)
        return {name.decode("utf-8", "replace") for name in line.findall(self._text)}

    def name_and_variants(self, name: str) -> tuple[list[KernelSymbol], list[KernelSymbol]]:
        """Return :meth:`named` and :meth:`variants` in one pass."""
        named, variants = [], []
        raw = encoded(name)
        for match in self._lines(raw):
            symbol = _symbol(match)
            if match[2] not in _CODE:
                continue
            if match[3] == raw:
                named.append(symbol)
            elif not re.search(_NO_ENTRY, symbol.name):
                variants.append(symbol)
        return named, variants

    def _lines(self, name: bytes) -> tuple[re.Match[bytes], ...]:
        # The lines with a name, or with a name that the compiler derived from it. Hundreds of
        # system calls of one pattern ask for the same names.
        if name not in self._found:
            if len(self._found) == _MAX_FOUND:
                self._found.clear()
            self._found[name] = tuple(self._search(name))
        return self._found[name]

    def _search(self, name: bytes) -> Iterator[re.Match[bytes]]:
        if not name:  # every name would be derived
            return
        # Searching for the bytes of the name first is much faster than the expression alone.
        line = re.compile(
            rb"([0-9a-f]+) ([a-zA-Z]) ("
            + re.escape(name)
            + rb"(?:\.\S+)?)(?:\t\[(\S+)\])?(?:\n|\Z)"
        )
        start = b" " + name
        at = self._text.find(start)
        while at >= 0:
            match = line.match(self._text, self._text.rfind(b"\n", 0, at) + 1)
            if match:
                yield match
            at = self._text.find(start, at + 1)

    def families(self) -> dict[str, list[str]]:
        """Return name → names of its :meth:`variants`, for all functions."""
        found: dict[str, list[str]] = {}
        for symbol in self.functions():
            if "." in symbol.name:
                found.setdefault(symbol.name.partition(".")[0], []).append(symbol.name)
        return found

    def addresses(self, names: Collection[tuple[str, str]]) -> dict[tuple[str, str], list[int]]:
        """Return (module, name) → addresses of some functions; faster than :meth:`functions`."""
        wanted = {(encoded(module), encoded(name)) for module, name in names}
        found: dict[tuple[str, str], list[int]] = {}
        for address, _, name, module in re.findall(_LINE, self._text):
            if (module, name) in wanted:
                key = module.decode(), name.decode()
                found.setdefault(key, []).append(int(address, 16))
        return found

    def functions(self) -> list[KernelSymbol]:
        """Return all function entries, in the order of the file."""
        is_no_entry = re.compile(_NO_ENTRY).search
        found = (_symbol(match) for match in re.finditer(_LINE, self._text))
        return [symbol for symbol in found if not is_no_entry(symbol.name)]


def _symbol(match: re.Match[bytes]) -> KernelSymbol:
    name, module = match[3].decode("utf-8", "replace"), (match[4] or b"").decode()
    return KernelSymbol(name, int(match[1], 16), "" if module.startswith("__builtin") else module)


class KallsymsLoader:
    """A thread that reads /proc/kallsyms, for which the kernel takes tens of milliseconds.

    Args:
        kept: take the text that an earlier run has kept, if it is that of these modules; else keep
            it. It lacks what came since, without a module: the code of BPF programs and of probes.
    """

    def __init__(self, *, kept: bool = False) -> None:
        self._text = b""
        self._error: OSError | None = None
        self._thread = threading.Thread(target=self._read, args=(kept,), daemon=True)
        self._thread.start()

    def _read(self, kept: bool) -> None:  # noqa: FBT001 - a thread's argument
        try:
            self._text = _kept_text() if kept else _read_in_pieces(_KALLSYMS)
        except OSError as err:
            self._error = err

    def result(self) -> Kallsyms:
        """Wait for the thread and return the functions.

        Raises:
            TargetError: /proc/kallsyms cannot be read.
        """
        self._thread.join()
        if self._error:
            raise TargetError(f"{_KALLSYMS}: {self._error.strerror}") from self._error
        return Kallsyms(self._text)


_begun: list[KallsymsLoader] = []  # the loader that is started but not yet used; at most one


def start_loading(words: Collection[str]) -> None:
    """Start reading now; the next :func:`kallsyms_loader` returns this loader."""
    if not _begun:
        _begun.append(kallsyms_loader(words))


def kallsyms_loader(words: Collection[str] = ("*",)) -> KallsymsLoader:
    """Return the loader that :func:`start_loading` started, or start one.

    Args:
        words: the functions that it is for: names, or patterns for all of them.
    """
    if _begun:
        return _begun.pop()
    return KallsymsLoader(kept=not any(re.search(_COMES_AND_GOES, word) for word in words))


def _kept_text() -> bytes:
    # The first lines tell whether addresses are shown to this process.
    number = os.open(_KALLSYMS, os.O_RDONLY | os.O_CLOEXEC)
    try:
        start = os.read(number, _PIECE)
    finally:
        os.close(number)
    about = f"symbols {_VERSION} of {_modules()}: {start.decode('ascii', 'replace')}"
    text = load_of_boot(_KEPT, about)
    if text is None:
        text = _read_in_pieces(_KALLSYMS)
        if len(text) <= _MAX_KEPT:
            store_of_boot(_KEPT, about, text)
    return text


def _modules() -> str:
    # Their names, sizes, states and addresses, but not how often they are used.
    try:
        with open("/proc/modules", encoding="ascii", errors="replace") as file:  # noqa: PTH123 - as in usdt.btf.files
            lines = [line.split() for line in file]
    except OSError:
        return "none"
    return ", ".join(" ".join([*words[:2], *words[4:6]]) for words in lines)


def _read_in_pieces(path: str) -> bytes:
    parts: list[memoryview] = []
    number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        while True:
            buffer = memoryview(bytearray(_PIECE * _PIECES))
            count = os.readv(
                number, [buffer[i : i + _PIECE] for i in range(0, len(buffer), _PIECE)]
            )
            if not count:
                return b"".join(parts)
            parts.append(buffer[:count])
    finally:
        os.close(number)


class FtraceFunctions:
    """The functions in available_filter_functions.

    Args:
        text: contents of the file.
        problem: why the functions are unknown; "" if they are known.
    """

    def __init__(self, text: bytes, problem: str = "") -> None:
        self._text = b"\n" + text
        self.problem = problem

    def __contains__(self, name: str) -> bool:
        raw = b"\n" + encoded(name)
        return raw + b"\n" in self._text or raw + b" [" in self._text

    def matching(self, pattern: str) -> list[tuple[str, str]]:
        """Return (module, name) of the functions that match a pattern, each once."""
        match = re.compile(fnmatch.translate(pattern)).match
        found = {}
        for line in self._text.decode().split("\n"):
            name, _, module = line.partition(" ")
            if match(name) and name:
                found[module[1:-1], name] = True
        return list(found)

    def functions(self) -> list[KernelSymbol]:
        """Return all functions, without addresses."""
        lines = (line.split(" ") for line in self._text.decode().splitlines() if line)
        return [
            KernelSymbol(words[0], 0, words[1][1:-1] if len(words) > 1 else "") for words in lines
        ]


def read_ftrace_functions() -> FtraceFunctions:
    """Read the functions that ftrace, and so fentry and usually kprobes, can reach."""
    problem = ""
    for folder in _TRACEFS:
        path = f"{folder}/{_FUNCTIONS}"
        try:
            with open(path, "rb") as file:  # noqa: PTH123 - as in usdt.btf.files
                return FtraceFunctions(file.read())
        except OSError as err:
            if not problem or err.errno != errno.ENOENT:
                problem = problem or f"{path}: {err.strerror}"
    return FtraceFunctions(b"", problem)


def have_kprobes() -> bool:
    """Return True if the kernel has kprobes for tracing (CONFIG_KPROBE_EVENTS).

    Such a kernel has the kprobe PMU (Linux 4.17) or the tracefs file kprobe_events.
    """
    paths = [f"{folder}/kprobe_events" for folder in _TRACEFS]
    return any(map(os.path.exists, ["/sys/bus/event_source/devices/kprobe", *paths]))
