"""Find the functions of a file that a probe names."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING

from usdt.base.closeable import Closeable
from usdt.base.errors import ProbeNotFound, TracingError
from usdt.base.frozen import replace
from usdt.base.text import closest, most_alike, plural
from usdt.elf.file import ElfFile
from usdt.elf.format import STT_FUNC, STT_GNU_IFUNC, STT_NOTYPE, STT_OBJECT
from usdt.elf.symbol_tables import SymbolTables
from usdt.engine.language.pattern import source_line
from usdt.uprobes.instruction_boundary import boundary_problem
from usdt.uprobes.name_patterns import (
    bare_name,
    is_mangled,
    literal_of,
    name_matcher,
    required_text,
    shown_name,
)
from usdt.uprobes.places.probe_function import INLINED, ProbeFunction
from usdt.uprobes.unsafe_instructions import is_unsafe, refused_reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from usdt.elf.symbol_table import ElfSymbol
    from usdt.uprobes.debug_info import Debug
    from usdt.uprobes.places.place_functions import PlaceFunctions

__all__ = ("FunctionFile", "ProbeFunction")

_OFFSET = re.compile(r"(.+)\+(0[xX][0-9a-fA-F]+|[0-9]+)")
_ADDRESS = re.compile(r"0[xX][0-9a-fA-F]+")
_MAX_COUNTED = 2 << 20  # bytes of entries that are read, within 0.2 s, to count inlined copies
_PLT = (".plt", ".plt.got", ".plt.sec", ".iplt")
_GO = (".go.buildinfo", ".note.go.buildid")
# Functions that store their return address or have none; glibc's __GI_ and leading underscores are
# removed from the names.
_RETURNS_TWICE = frozenset(
    (
        *("setjmp", "sigsetjmp", "sigsetjmp_cancel", "savectx", "getcontext", "swapcontext"),
        *("vfork", "libc_vfork", "clone", "clone2", "clone3", "clone_internal"),
    )
)
_GO_RETURN = (
    "a Go program: a return probe would crash it, because Go moves stacks and checks the return "
    "addresses on them"
)
_OWN_RETURN_ADDRESS = (
    "a return probe would break the program: it replaces the return address, which this function "
    "keeps or does not have"
)
_PART = re.compile(r"\.(cold|part\.[0-9]+)(\.|$)")  # a part of a function, not one by itself


class FunctionFile(Closeable):
    """The functions of a file; a context manager.

    Args:
        path: the file's name, for messages.
        open_path: the path to open, if it differs.
        roots: root directories in which debug files are searched.

    Attributes:
        notes: messages for ``-v`` about the functions found.

    Raises:
        ElfError: the file is not an ELF file, or damaged.
        TargetError: the file cannot be opened.
    """

    def __init__(
        self, path: str, open_path: str | None = None, *, roots: Sequence[str] = ("",)
    ) -> None:
        self.path = path
        self.open_path = open_path or path
        self.roots = tuple(roots)
        self.notes: list[str] = []
        self.elf = ElfFile(open_path or path, name=path)
        self._symbols = SymbolTables(self.elf, roots=roots)
        self.machine = self.elf.machine_name
        self.is_go = any(self.elf.section(name) is not None for name in _GO)

    def close(self) -> None:
        """Close all files but those of :attr:`debug` if it has other users; idempotent."""
        self._symbols.close()
        self.__dict__.pop("_places", None)

    def find(self, pattern: str) -> list[ProbeFunction]:
        """Return the functions that match ``FUNCTION[+OFFSET]`` or an address, sorted by address.

        Raises:
            ProbeNotFound: there is none, or it cannot be traced; the message says why.
        """
        shift = 0
        name = literal_of(pattern)
        if name is not None and _ADDRESS.fullmatch(name):
            return self._drop_unsafe([self._at(int(name, 16))])
        if name is not None and (line := source_line(name)) is not None:
            return self._drop_unsafe(self._at_line(*line, name))
        if pattern.endswith(INLINED):
            pattern = pattern.removesuffix(INLINED)
            return self._drop_unsafe(self._with_inlined(pattern, literal_of(pattern)))
        offset = _OFFSET.fullmatch(pattern)
        if offset is not None:
            pattern, shift = offset[1], int(offset[2], 0)
            name = literal_of(pattern)
        found = self._matching(pattern) if name is None else self._named(name, pattern)
        if shift:
            found = [self._shifted(one, shift) for one in found]
        return self._drop_unsafe(found)

    def _drop_unsafe(self, found: list[ProbeFunction]) -> list[ProbeFunction]:
        # Drop the functions where a breakpoint would damage the program, or is refused.
        if self.machine not in ("x86_64", "i386"):
            return found
        codes = {one.offset: self.elf.bytes_at(one.offset, 15) for one in found}
        found = self._drop_refused(found, codes)
        bad = [one for one in found if is_unsafe(codes[one.offset], self.machine)]
        if bad and len(bad) == len(found):
            raise ProbeNotFound(
                f"{self.path}: {bad[0].label} begins with a vector instruction that Linux "
                "mistakes for a jump when it is probed, which damages the program; probe a caller"
            )
        if bad:
            names = ", ".join(one.label for one in bad[:4])
            self.notes.append(
                f"{self.path}: left out {plural(len(bad), 'function')}, because Linux mistakes "
                f"the first instruction, a vector instruction, for a jump: {names}"
            )
        return [one for one in found if one not in bad] if bad else found

    def _drop_refused(
        self, found: list[ProbeFunction], codes: dict[int, bytes]
    ) -> list[ProbeFunction]:
        # Drop the functions whose first instruction cannot carry a breakpoint.
        reasons = {
            one: reason
            for one in found
            if (reason := refused_reason(codes[one.offset], self.machine))
        }
        if not reasons:
            return found
        first = next(iter(reasons))
        if len(reasons) == len(found):
            raise ProbeNotFound(
                f"{self.path}: {first.label} begins with {reasons[first]}, which Linux cannot "
                "probe; probe another instruction of the function or a caller"
            )
        names = ", ".join(one.label for one in list(reasons)[:4])
        self.notes.append(
            f"{self.path}: left out {plural(len(reasons), 'function')}, because Linux cannot probe "
            f"the first instruction: {names}"
        )
        return [one for one in found if one not in reasons]

    # ------------------------------------------------------------ by name

    def _named(self, name: str, pattern: str) -> list[ProbeFunction]:
        symbols = self._symbols.named(name)
        if not any(map(self._is_code, symbols)):
            matching, text = name_matcher(pattern), required_text(pattern)
            if text or "::" in name or "operator" in name:
                symbols += self._symbols.matching(
                    lambda symbol: (
                        is_mangled(symbol) and matching(symbol) and not _PART.search(symbol)
                    ),
                    text,
                )
        # glibc also has an old memcpy that is a plain function; new programs do not call it.
        indirect = any(one.type == STT_GNU_IFUNC and not one.imported for one in symbols)
        code = [one for one in symbols if self._is_code(one) and not indirect]
        typed = [one for one in code if one.type == STT_FUNC]
        found = self._functions(typed or code, preferred=name)
        if not found:
            raise self._none(name, symbols)
        if len(found) > 1:
            addresses = ", ".join(f"{one.start:#x}" for one in found[:8])
            self.notes.append(f"{self.path}: {len(found)} functions are named {name}: {addresses}")
        return found

    def _is_code(self, symbol: ElfSymbol) -> bool:
        if symbol.imported or symbol.type not in (STT_FUNC, STT_NOTYPE) or symbol.thumb:
            return False
        return self.elf.offset_of(symbol.address, executable=True) is not None

    def _none(self, name: str, symbols: list[ElfSymbol]) -> ProbeNotFound:
        # The error for symbols of that name that are not functions.
        kinds = {one.type for one in symbols if not one.imported}
        where = f"{self.path}: {name}"
        if STT_GNU_IFUNC in kinds:
            return ProbeNotFound(
                f"{where} is an indirect function (IFUNC): the symbol is its resolver, "
                f"which runs once and chooses {self._variants(name)}"
            )
        if any(one.thumb for one in symbols):
            return ProbeNotFound(f"{where} is Thumb code, for which Linux has no uprobes")
        if STT_OBJECT in kinds:
            return ProbeNotFound(f"{where} is a variable, not a function")
        if kinds:
            return ProbeNotFound(f"{where} is not in code that is loaded from the file")
        if symbols or name.endswith("@plt"):
            name = name.removesuffix("@plt")
            return ProbeNotFound(
                f"{self.path}: {name} is imported, not defined here; trace it in its own file: "
                f"uprobe:LIBRARY:{name}"
            )
        return self._unknown(name)

    def _variants(self, name: str) -> str:
        part = name.lstrip("_")
        found = self._symbols.matching(lambda other: part in other and other != name)
        names = sorted({one.name for one in found if self._is_code(one)})
        same = [other for other in names if other.lstrip("_").startswith(f"{part}_")]
        if not same:
            return "one of several functions that the symbol tables do not name"
        shown = ", ".join(same[:4]) + (", …" if len(same) > 4 else "")
        return f"one of {len(same)} functions: name that ({shown})"

    def _unknown(self, name: str) -> ProbeNotFound:
        names = self._symbols.code_names()
        parts = sorted(other for other in names if other.startswith(f"{name}."))
        if parts:
            shown = ", ".join(parts[:4]) + (", …" if len(parts) > 4 else "")
            return ProbeNotFound(
                f"{self.path}: no function {name}: the compiler split it into {shown}; trace that"
            )
        inlined = self._inlined_hint(name)
        if inlined:
            return ProbeNotFound(f"{self.path}: no function {name}{inlined}")
        near = _nearest(name, names)
        if not names:
            what = f"no function {name}: the file has no function symbols"
        else:
            what = f"no function {name}" + (f"; nearest is {near}" if near else "")
        if self._symbols.stripped:
            what += (
                f"; the file is stripped (known: {plural(len(names), 'function')}); install its "
                "debug symbols, or give an address: uprobe:TARGET:0x…"
            )
        elif not near:
            what += f" among {len(names)} (list them with: usdt list {self.path} 'uprobe:*')"
        return ProbeNotFound(f"{self.path}: {what}")

    # ------------------------------------------------------------ by pattern and address

    def _matching(self, pattern: str) -> list[ProbeFunction]:
        matching = name_matcher(pattern)
        symbols = self._symbols.matching(matching)
        usable = [one for one in symbols if one.type == STT_FUNC and self._is_code(one)]
        indirect = {one.name for one in symbols if one.type == STT_GNU_IFUNC and not one.imported}
        found = self._functions(
            [one for one in usable if not _PART.search(one.name) and one.name not in indirect]
        )
        if indirect:
            names = ", ".join(sorted(indirect)[:4])
            count = plural(len(indirect), "indirect function")
            self.notes.append(f"{self.path}: left out {count} (IFUNC): {names}")
        if not found:
            imported = sum(one.imported for one in symbols)
            raise ProbeNotFound(
                f"{self.path}: no function matches {pattern}"
                + (
                    f", but {imported} imported ones do: trace them in their own files"
                    * bool(imported)
                )
                + (", but indirect ones (IFUNC) do, which cannot be traced" if indirect else "")
                + ("; the file is stripped" if self._symbols.stripped else "")
                + self._inlined_hint(pattern)
            )
        return found

    def _at(self, address: int) -> ProbeFunction:
        offset = self.elf.offset_of(address, executable=True)
        if offset is None:
            raise ProbeNotFound(
                f"{self.path}: {address:#x} is not in code; give a link-time address, as nm and "
                "objdump show it"
            )
        for section in self.elf.sections:
            inside = section.address <= address < section.address + section.size
            if section.name in _PLT and inside:
                raise ProbeNotFound(
                    f"{self.path}: {address:#x} is in {section.name}: a stub that calls "
                    "a function of another file; trace that function"
                )
        code = [one for one in self._symbols.starting_at(address) if one.type != STT_GNU_IFUNC]
        if code:
            return self._functions(code)[0]
        around = self._symbols.containing(address)
        if around is not None:
            return self._shifted(self._functions([around])[0], address - around.address)
        name = f"{address:#x}"
        no_return = self._no_return(())
        return ProbeFunction(
            name, "", self.path, self.machine, address, 0, 0, offset, (), self.is_go, no_return
        )

    def _at_line(self, source: str, line: int, written: str) -> list[ProbeFunction]:
        return self._places.at_line(source, line, written)

    def _with_inlined(self, pattern: str, name: str | None) -> list[ProbeFunction]:
        # FUNCTION+inlined: the functions, and all inlined copies.
        try:
            own = self._matching(pattern) if name is None else self._named(name, pattern)
        except ProbeNotFound:
            own = []
        copies = self._places.inlined(pattern)
        if not copies and not own:
            shown = name or pattern
            raise ProbeNotFound(f"{self.path}: no function {shown}, and none is inlined anywhere")
        named = [replace(one, written=f"{one.name}{INLINED}") for one in own]
        return sorted((*named, *copies), key=lambda one: one.address)

    @functools.cached_property
    def _places(self) -> PlaceFunctions:
        from usdt.uprobes.places.place_functions import PlaceFunctions  # noqa: PLC0415 - for places

        return PlaceFunctions(self.elf, self.open_path, self.roots, is_go=self.is_go)

    @property
    def debug(self) -> Debug | None:
        """The debug information, if places needed it; its users keep it open."""
        return self._places.debug if "_places" in self.__dict__ else None

    def inlined_copies(self, pattern: str) -> dict[str, int]:
        """Return the number of inlined copies of the functions that match, by function.

        Only debug information in the file itself counts, and only if reading it takes no time. Of
        more debug information, :attr:`notes` says that it was not read.

        Raises:
            TracingError: the debug information is damaged.
        """
        section = self.elf.section(".debug_info")
        if section is None:
            return {}
        if section.size > _MAX_COUNTED:
            self.notes.append(
                f"{self.path}: inlined copies of {pattern} are not counted, in "
                f"{section.size >> 20} MiB of debug information; {pattern}{INLINED} probes them"
            )
            return {}
        return self._places.inlined_counts(pattern)

    def _inlined_hint(self, name: str) -> str:
        try:
            copies = sum(self.inlined_copies(name).values())
        except TracingError:  # damaged debug information is reported where it is needed
            return ""
        if not copies:
            return ""
        places = "1 place" if copies == 1 else f"{copies} places"
        return f"; the compiler inlined it at {places}, which {name}{INLINED} probes"

    def _shifted(self, function: ProbeFunction, shift: int) -> ProbeFunction:
        address = function.start + shift
        offset = self.elf.offset_of(address, executable=True)
        where = f"{self.path}: {function.name}+{shift:#x}"
        if offset is None or (function.size and shift >= function.size):
            raise ProbeNotFound(f"{where} is outside the function, which has {function.size} bytes")
        problem, unknown = boundary_problem(self.elf, function.start, address)
        if problem:
            raise ProbeNotFound(f"{where} is inside an instruction: {problem}")
        if unknown:
            self.notes.append(f"{where}: {unknown}")
        return replace(function, offset_in_function=shift, offset=offset)

    def _functions(self, symbols: Iterable[ElfSymbol], preferred: str = "") -> list[ProbeFunction]:
        # All names of an address are one function.
        by_address: dict[int, list[ElfSymbol]] = {}
        for one in symbols:
            by_address.setdefault(one.address, []).append(one)
        found = []
        for address, names in sorted(by_address.items()):
            # 64-bit PowerPC: callers in the same file skip the global entry point.
            enters = address + max(one.local_entry for one in names)
            offset = self.elf.offset_of(enters, executable=True)
            if offset is None:
                continue
            names.sort(key=lambda one: (one.name != preferred, *_rank(one)))
            best = names[0]
            every = names if not preferred else [*names, *self._symbols_at(best)]
            aliases = dict.fromkeys(one.name for one in every if one.name != best.name)
            found.append(
                ProbeFunction(
                    shown_name(best.name),
                    best.name,
                    self.path,
                    self.machine,
                    address,
                    max(one.size for one in names),
                    0,
                    offset,
                    tuple(aliases),
                    self.is_go and "." in best.name,
                    self._no_return(names),
                )
            )
        return found

    def _no_return(self, names: Iterable[ElfSymbol]) -> str:
        if self.is_go:
            return _GO_RETURN
        for one in names:
            plain = one.name.removeprefix("__GI_").lstrip("_")
            if one.name == "_start" or plain in _RETURNS_TWICE:
                return _OWN_RETURN_ADDRESS
        return ""

    described = False  # True to collect all aliases, which reads every symbol

    def _symbols_at(self, symbol: ElfSymbol) -> list[ElfSymbol]:
        return self._symbols.starting_at(symbol.address) if self.described else []


def _rank(symbol: ElfSymbol) -> tuple[bool, int, int, int, str]:
    # Sort key of a function's names: the name that a user would write comes first.
    name = symbol.name
    binding = {1: 0, 2: 1}.get(symbol.binding, 2)
    underscores = 0 if is_mangled(name) else len(name) - len(name.lstrip("_"))
    return symbol.type != STT_FUNC, binding, underscores, len(name), name


def _nearest(name: str, names: Iterable[str]) -> str:
    # Compare the names that users write: mangled names in their demangled form.
    known = [one for one in names if not is_mangled(one)]
    if "::" in name or not known:
        parts = re.findall(r"\w{2,}", name)
        mangled = (one for one in names if is_mangled(one) and any(part in one for part in parts))
        # Demangling takes as long as comparing.
        known = [bare_name(shown_name(one)) for one in most_alike("".join(parts), mangled)]
    return closest(name, known, 0.7)
