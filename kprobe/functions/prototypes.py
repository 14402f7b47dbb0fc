"""Kernel functions: prototypes from BTF, and whether probes can be attached to them."""

from __future__ import annotations

import fnmatch
import re
from typing import TYPE_CHECKING, Any

from kprobe.functions.blacklist import BLACKLIST, Blacklist, read_blacklist
from kprobe.functions.symbols import (
    FtraceFunctions,
    KallsymsLoader,
    KernelSymbol,
    have_kprobes,
    read_ftrace_functions,
)
from usdt.base.errors import BtfError, NotSupported, ProbeNotFound
from usdt.base.frozen import frozen
from usdt.base.text import closest
from usdt.btf.dump.declare import declaration
from usdt.btf.files import modules
from usdt.btf.format import Kind
from usdt.btf.reader import Btf
from usdt.btf.types import Function, FunctionProto

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

from kprobe.functions.symbols import Kallsyms

__all__ = ("FunctionInfo", "Functions", "current_functions", "split_pattern")

_GLOB = re.compile(r"[*?[]")
_NO_KPROBES = "this kernel has no kprobes (CONFIG_KPROBES)"


@frozen
class FunctionInfo:
    """A kernel function.

    Attributes:
        name: its name in BTF or kallsyms.
        module: its module; "" for the kernel itself.
        btf: the BTF with its prototype, or None.
        prototype: ID of its prototype in ``btf``, or 0.
        addresses: addresses of all functions of this name; the kernel cannot tell them apart.
        variants: names of functions that the compiler derived from it (``NAME.isra.0``).
        problem: why it cannot be attached; "" if no reason is known.
    """

    name: str
    module: str
    btf: Btf | None
    prototype: int
    addresses: tuple[int, ...]
    variants: tuple[str, ...]
    problem: str

    @property
    def declaration(self) -> str:
        """Its prototype in C; "" without BTF."""
        return declaration(self.btf, self.prototype, self.name) if self.btf else ""

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object of ``kprobe info --json``."""
        found: dict[str, Any] = {
            "name": self.name,
            "module": self.module or None,
            "prototype": self.declaration or None,
        }
        prototype = self.btf.type(self.prototype) if self.btf else None
        if self.btf and isinstance(prototype, FunctionProto):
            parameters = prototype.parameters[:-1] if prototype.variadic else prototype.parameters
            found["return"] = declaration(self.btf, prototype.return_type_id)
            found["parameters"] = [
                {"name": one.name or None, "type": declaration(self.btf, one.type_id)}
                for one in parameters
            ]
            found["variadic"] = prototype.variadic
        found["addresses"] = list(self.addresses)
        found["variants"] = list(self.variants)
        found["problem"] = self.problem or None
        return found


def split_pattern(text: str) -> tuple[str | None, str]:
    """Split ``[kprobe:][MODULE:]FUNCTION`` into module (or None) and function."""
    text = text.removeprefix("kprobe:")
    module, colon, name = text.rpartition(":")
    return (module if colon else None), name


_current: dict[bytes, Functions] = {}  # /proc/modules → its functions; at most one entry


def current_functions() -> Functions:
    """Return the kernel's functions, cached until a module is loaded or unloaded."""
    try:
        with open("/proc/modules", "rb") as file:  # noqa: PTH123 - as in usdt.btf.files
            loaded = file.read()
    except OSError:
        loaded = b""
    if loaded not in _current:
        _current.clear()
        _current[loaded] = Functions()
    return _current[loaded]


class Functions:
    """The functions of the running kernel; a thread starts reading them at once."""

    def __init__(self, reading: KallsymsLoader | None = None) -> None:
        self._reading = reading or KallsymsLoader()
        self._known: Kallsyms | None = None
        self._reach: FtraceFunctions | None = None
        self._forbidden: Blacklist | None = None
        self._types: dict[str, Btf | None] = {}
        self._names: set[str] | None = None  # for hints

    @property
    def blacklist(self) -> Blacklist:
        """The code that must not have kprobes."""
        if self._forbidden is None:
            self._forbidden = read_blacklist()
        return self._forbidden

    def why_not_traceable(self, name: str) -> str:
        """Return why functions of this name cannot be attached; "" if no reason is known."""
        if not self.traceable.problem and name not in self.traceable:
            return "notrace: not in available_filter_functions"
        if self.blacklist.names(name):
            return f"on the kprobes blacklist ({BLACKLIST})"
        return ""

    def named(self, module: str, name: str) -> list[KernelSymbol]:
        """Return the functions of this name in kallsyms, in a module or (for "") in any."""
        found = self.symbols.named(name)
        return [one for one in found if module in ("", one.module or "vmlinux")]

    @property
    def symbols(self) -> Kallsyms:
        """The symbols of /proc/kallsyms.

        Raises:
            TargetError: the file cannot be read.
        """
        if self._known is None:
            self._known = self._reading.result()
        return self._known

    def addresses_by_name(self, module: str, pattern: str) -> dict[tuple[str, str], list[int]]:
        """Return (module, name) → addresses of the traceable functions that match both patterns.

        If the traceable functions are unknown, all functions count. A function that is not in
        kallsyms has no addresses.
        """
        keys = self.traceable.matching(pattern)
        if self.traceable.problem:
            keys = [
                (one.module, one.name)
                for one in self.symbols.functions()
                if fnmatch.fnmatchcase(one.name, pattern)
            ]
        keys = [key for key in keys if fnmatch.fnmatchcase(key[0] or "vmlinux", module)]
        found = self.symbols.addresses(keys) if keys else {}
        return {key: found.get(key, []) for key in keys}

    @property
    def traceable(self) -> FtraceFunctions:
        """The functions that ftrace can reach."""
        if self._reach is None:
            self._reach = read_ftrace_functions()
        return self._reach

    def notices(self) -> list[str]:
        """Return messages about what this kernel lacks."""
        if not have_kprobes():
            return [f"{_NO_KPROBES}: nothing can be attached"]
        if self.traceable.problem:
            return [f"cannot tell which functions are notrace: {self.traceable.problem}"]
        return []

    def listed(self) -> list[KernelSymbol]:
        """Return the traceable functions, or all of kallsyms if those are unknown."""
        found = self.traceable.functions() or self.symbols.functions()
        return sorted(dict.fromkeys(found), key=lambda one: (one.module, one.name))

    def matching(self, pattern: str) -> list[KernelSymbol]:
        """Return the functions of :meth:`listed` that match ``[MODULE:]PATTERN``."""
        module, name = split_pattern(pattern)
        return [
            one
            for one in self.listed()
            if fnmatch.fnmatchcase(one.name, name)
            and (module is None or fnmatch.fnmatchcase(one.module or "vmlinux", module))
        ]

    def find(self, pattern: str) -> list[FunctionInfo]:
        """Return functions by ``[MODULE:]NAME``, or by a pattern with ``*`` and ``?``.

        Raises:
            ProbeNotFound: there is none; the message names the most similar one.
            NotSupported: the kernel has no BTF.
        """
        module, name = split_pattern(pattern)
        if _GLOB.search(name) or (module and _GLOB.search(module)):
            found = list(self._glob(module, name))
        else:
            found = self._exact(module, name)
        if not found:
            raise ProbeNotFound(f"no kernel function {pattern}{self.hint(name)} (see: kprobe list)")
        return found

    def _exact(self, module: str | None, name: str) -> list[FunctionInfo]:
        # Look up the types first: the thread may still be reading kallsyms.
        kernel = self.btf_of("")
        ids = kernel.find(name, Kind.FUNC) if kernel and module in (None, "vmlinux") else []
        symbols, made = self.symbols.name_and_variants(name)
        owners = {symbol.module for symbol in symbols} | ({""} if ids else set())
        if module is not None:
            owners &= {"" if module == "vmlinux" else module}
        found: list[FunctionInfo] = []
        for owner in sorted(owners):
            btf = self.btf_of(owner)
            own = ids if not owner else btf.find(name, Kind.FUNC) if btf else []
            variants = [one.name for one in made]
            found += self._infos((owner, name), btf, own, symbols, variants)
        if not found and module is None:
            found = list(self._renamed(name))
        return found

    def _renamed(self, name: str) -> Iterator[FunctionInfo]:
        variants = self.symbols.variants(name)
        for module in dict.fromkeys(one.module for one in variants):
            names = [one.name for one in variants if one.module == module]
            yield from self._infos((module, name), None, [], [], names)
        for one in dict.fromkeys((one.module, one.name) for one in variants):
            yield from self._infos(one, None, [], self.symbols.named(one[1]))

    def _glob(self, module: str | None, name: str) -> Iterator[FunctionInfo]:
        every: dict[tuple[str, str], list[KernelSymbol]] = {}
        for symbol in self.symbols.functions():
            if fnmatch.fnmatchcase(symbol.name, name):
                every.setdefault((symbol.module, symbol.name), []).append(symbol)
        families = self.symbols.families()
        types: dict[tuple[str, str], list[int]] = {}
        for owner in ("", *modules()):
            btf = self.btf_of(owner)
            for number, label in btf.named(Kind.FUNC) if btf else ():
                if fnmatch.fnmatchcase(label, name):
                    types.setdefault((owner, label), []).append(number)
        for owner, label in sorted({*every, *types}):
            if module is None or fnmatch.fnmatchcase(owner or "vmlinux", module):
                ids, symbols = types.get((owner, label), []), every.get((owner, label), [])
                variants = families.get(label, [])
                btf = self.btf_of(owner)
                yield from self._infos((owner, label), btf, ids, symbols, variants)

    def _infos(
        self,
        key: tuple[str, str],
        btf: Btf | None,
        ids: list[int],
        symbols: list[KernelSymbol],
        variants: Iterable[str] = (),
    ) -> Iterator[FunctionInfo]:
        # One per prototype: static functions of the same name may have different prototypes.
        module, name = key
        addresses = tuple(one.address for one in symbols if one.module == module)
        variants = tuple(dict.fromkeys(variants))
        problem = self._problem(name, addresses, variants)
        if not ids or btf is None:
            yield FunctionInfo(name, module, None, 0, addresses, variants, problem)
            return
        seen = set()
        for number in ids:
            function = btf.type(number)
            if isinstance(function, Function) and function.type_id not in seen:
                seen.add(function.type_id)
                yield FunctionInfo(
                    name, module, btf, function.type_id, addresses, variants, problem
                )

    def _problem(self, name: str, addresses: tuple[int, ...], variants: tuple[str, ...]) -> str:
        if not addresses:
            if variants:
                return f"exists only as {', '.join(variants)}, whose arguments may differ"
            return "not in kallsyms: inlined into all callers, or discarded after boot"
        return self.why_not_traceable(name)

    def btf_of(self, module: str) -> Btf | None:
        """Return the BTF of a module, or of the kernel for ""; None if the module has none.

        Raises:
            NotSupported: the kernel has no BTF.
        """
        if module not in self._types:
            try:
                self._types[module] = Btf.from_module(module) if module else Btf.from_kernel()
            except (BtfError, NotSupported):
                if not module:
                    raise
                self._types[module] = None
        return self._types[module]

    def hint(self, name: str) -> str:
        """Return the end of a message that suggests functions for an unknown name."""
        made = dict.fromkeys(one.name for one in self.symbols.variants(name))
        if made:
            return f"; the compiler renamed it: {', '.join(made)}"
        near = self._nearest(name)
        return f"; nearest is {near}" if near else ""

    def _nearest(self, name: str) -> str:
        # difflib is slow, and a script may name many functions that this kernel does not have: it
        # compares those alone that share a quarter of the runs of three letters.
        if self._names is None:
            self._names = {one.name for one in self.symbols.functions()}
        runs = {name[at : at + 3] for at in range(len(name) - 2)}
        start, least = name[:2], (len(runs) + 3) // 4
        alike = [
            one
            for one in self._names
            if one.startswith(start)
            and abs(len(one) - len(name)) < 4
            and sum(run in one for run in runs) >= least
        ]
        return closest(name, sorted(alike))
