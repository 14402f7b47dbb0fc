"""Variables of the kernel by name → arguments of probes.

Addresses are those of /proc/kallsyms. Types are those of variables in BTF: per-CPU ones in every
kernel with BTF, and all in kernels whose BTF has global variables. Types of others are in the debug
information of the kernel's image, if that is installed; else only the address is known.
"""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING

from kprobe.functions.prototypes import current_functions
from usdt.arch.locations import Constant, PerCpuAddress, Unreadable, ValueClass, ValueType
from usdt.base.errors import BtfError, NotSupported, TracingError
from usdt.base.frozen import replace
from usdt.base.text import closest
from usdt.btf.format import Kind
from usdt.btf.kernel_files import given_file, kernel_files, running_build_id
from usdt.btf.lookup import find_type
from usdt.btf.types import DataSection, Variable
from usdt.engine.compiler.arguments import Argument, known_names
from usdt.engine.compiler.ir import ByAddress, NoValue
from usdt.engine.language.needs_types import untyped_names
from usdt.engine.language.tree import Cast, Name, Unary, walk
from usdt.engine.run.registry import variable_type_reader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from collections.abc import Set as AbstractSet

    from kprobe.functions.symbols import Kallsyms, KernelSymbol
    from usdt.arch.locations import Location
    from usdt.btf.reader import Btf
    from usdt.engine.language.tree import Item
    from usdt.engine.runtime.attach.attach_points import AttachPoint

__all__ = ("KernelVariables", "running_variables", "with_variables")

_BYTES = ValueType(ValueClass.BYTES, 0)
_RESTRICT = "/proc/sys/kernel/kptr_restrict"
_PER_CPU = ".data..percpu"  # the section of per-CPU variables, in BTF
_WITNESS = "linux_banner"  # a variable that every kernel has
_QUALIFIERS = frozenset(("const", "volatile", "static"))
_NO_DATA = "this kernel's symbol table has no variables (CONFIG_KALLSYMS_ALL)"


def with_variables(
    points: Sequence[AttachPoint], items: Sequence[Item], module: str = ""
) -> list[AttachPoint]:
    """Return attach points with the variables that items name, if arguments do not have the names.

    Args:
        points: the attach points.
        items: the items, and those of ``--by`` and ``--key``.
        module: the module of the points; "" for the kernel itself.
    """
    names = untyped_names(items)
    wanted = [[name for name in names if name not in known_names(p.arguments)] for p in points]
    if not any(wanted):
        return [*points]
    variables = running_variables()
    cast = {name for name in names if _is_cast(name, items)}
    return [
        replace(point, arguments=(*variables.arguments(lacking, module, cast), *point.arguments))
        for point, lacking in zip(points, wanted, strict=True)
    ]


def running_variables() -> KernelVariables:
    """Return the variables of the running kernel.

    Raises:
        TargetError: /proc/kallsyms cannot be read.
    """
    functions = current_functions()
    return KernelVariables(functions.symbols, functions.btf_of, _type_in_image)


@functools.cache
def _type_in_image(name: str) -> str:
    # The first look at an image takes seconds: its index is made.
    given = given_file()
    paths = [*([given] if given else []), *kernel_files(os.uname().release)]
    return variable_type_reader()(paths, running_build_id(), name)


def _is_cast(name: str, items: Sequence[Item]) -> bool:
    # True if the address is cast wherever the name is used: its own type is not needed.
    nodes = [node for item in items for node in walk(item.expression)]
    uses = sum(isinstance(node, Name) and node.name == name for node in nodes)
    casts = [node.operand for node in nodes if isinstance(node, Cast)]
    taken = [one.operand for one in casts if isinstance(one, Unary) and one.op == "&"]
    return uses == sum(isinstance(one, Name) and one.name == name for one in taken)


class KernelVariables:
    """The variables of a kernel.

    Args:
        symbols: its symbols.
        btf_of: returns the BTF of a module, or of the kernel for "".
        debug_type: returns the type in C of a variable of the kernel, from debug information; ""
            for one that it does not have.
    """

    def __init__(
        self,
        symbols: Kallsyms,
        btf_of: Callable[[str], Btf | None],
        debug_type: Callable[[str], str] = lambda _: "",
    ) -> None:
        self._symbols = symbols
        self._btf_of = btf_of
        self._debug_type = debug_type

    def arguments(
        self, names: Iterable[str], module: str = "", cast: AbstractSet[str] = frozenset()
    ) -> tuple[Argument, ...]:
        """Return those of some names that are variables, as arguments of a probe.

        Args:
            names: the names; ``module::name`` is a variable of a module.
            module: the module of the probe, whose types are known there.
            cast: names whose type need not be searched in debug information.
        """
        found = (self._argument(name, module, untyped=name in cast) for name in names)
        return tuple(one for one in found if one is not None)

    def hint(self, name: str) -> str:
        """Return the end of a message about an unknown name: a variable that was meant."""
        if not self._symbols.variables(_WITNESS):
            return f"; {_NO_DATA}"
        names = self._symbols.variable_names(name[:2])
        near = closest(name, sorted(one for one in names if abs(len(one) - len(name)) < 4), 0.7)
        return f"; did you mean the variable {near}?" if near else ""

    def _argument(self, name: str, module: str, *, untyped: bool) -> Argument | None:
        owner, _, plain = name.rpartition("::")
        try:
            symbol = self._symbol(plain, owner, module)
            if symbol is None:
                return self._without_symbol(name, plain)
            variable = self._variable(symbol)
            fetch = self._fetch(symbol, variable)
            number = None if variable is None else variable.type_id
            if number is None and not (untyped or symbol.module):
                number = self._type_by_name(plain)
        except TracingError as err:
            return _refused(name, str(err))
        reason = f"the type of {name} is not in BTF"
        if number is not None and self._is_known_at(module, symbol.module, number):
            return Argument(name, _BYTES, fetch, hidden=True, type_ref=ByAddress(number))
        if number is not None:
            reason = f"the type of {name} is known at functions of the module {symbol.module}"
        reason += f": cast its address, as in *(unsigned long *)&{name}"
        return Argument(name, _BYTES, fetch, hidden=True, type_ref=NoValue(reason, kernel=True))

    # ------------------------------------------------------------ addresses

    def _symbol(self, name: str, owner: str, module: str) -> KernelSymbol | None:
        # The one of the probe's module comes first, then that of the kernel.
        found = self._symbols.variables(name)
        if self._hidden and (found or self._symbols.named(name)):
            raise TracingError(_why_hidden())
        if owner:
            found = [one for one in found if (one.module or "vmlinux") == owner]
        for first in () if owner else (module, ""):
            found = [one for one in found if one.module == first] or found
        if len({one.address for one in found}) > 1:
            modules = [one.module for one in found]
            if len({*modules}) == len(modules):
                hint = f"name its module, as in {modules[0]}::{name}"
                raise TracingError(f"several modules have a variable of this name: {hint}")
            raise TracingError(f"/proc/kallsyms has {len(found)} variables of this name")
        return found[0] if found else None

    @property
    def _hidden(self) -> bool:
        return all(one.address == 0 for one in self._symbols.named("_stext"))

    def _fetch(self, symbol: KernelSymbol, variable: Variable | None) -> Location:
        # A symbol of a per-CPU variable is the address of no copy.
        offsets = self._symbols.variables("__per_cpu_offset")  # none without SMP
        if offsets and self._is_per_cpu(symbol, variable):
            return PerCpuAddress(symbol.address, offsets[0].address)
        return Constant(symbol.address)

    def _is_per_cpu(self, symbol: KernelSymbol, variable: Variable | None) -> bool:
        bounds = [self._symbols.variables(f"__per_cpu_{end}") for end in ("start", "end")]
        if all(bounds):
            start, end = (found[0].address for found in bounds)
            if not symbol.module and start <= symbol.address < end:
                return True
        btf = None if variable is None else self._btf_of(symbol.module)
        if variable is None or btf is None:
            return False
        sections = (btf.type(number) for number in btf.ids(Kind.DATASEC))
        return any(
            isinstance(one, DataSection)
            and one.name == _PER_CPU
            and any(item.type_id == variable.id for item in one.items)
            for one in sections
        )

    # ------------------------------------------------------------ types

    def _variable(self, symbol: KernelSymbol) -> Variable | None:
        # None if BTF does not have the variable, or several of the name.
        btf = self._types(symbol.module)
        if btf is None:
            return None
        numbers = [number for number in btf.find(symbol.name, Kind.VAR) if number >= btf.first]
        try:
            found = [one for one in map(btf.type, numbers) if isinstance(one, Variable)]
        except BtfError:
            return None
        return found[0] if len({one.type_id for one in found}) == 1 else None

    def _type_by_name(self, name: str) -> int | None:
        # The type that debug information has, by its name in BTF: their numbers differ.
        btf = self._types("")
        text = self._debug_type(name) if btf is not None else ""
        words = [word for word in text.split() if word not in _QUALIFIERS]
        try:
            return find_type(btf, " ".join(words)) if btf is not None and words else None
        except BtfError:
            return None

    def _is_known_at(self, module: str, owner: str, number: int) -> bool:
        # Whether probes of a module know a type: their own module's, and those of the kernel.
        btf = self._types(owner)
        return owner in ("", module) or (btf is not None and number < btf.first)

    def _types(self, module: str) -> Btf | None:
        try:
            return self._btf_of(module)
        except NotSupported:
            return None

    def _without_symbol(self, name: str, plain: str) -> Argument | None:
        # A variable that only BTF has.
        btf = self._types("")
        if btf is None or not btf.find(plain, Kind.VAR):
            return None
        none = not self._symbols.variables(_WITNESS)
        return _refused(name, _NO_DATA if none else "its address is not in /proc/kallsyms")


def _refused(name: str, reason: str) -> Argument:
    whole = f"{name}: {reason}"
    kind = NoValue(whole, kernel=True)
    return Argument(name, _BYTES, Unreadable(whole), hidden=True, type_ref=kind)


def _why_hidden() -> str:
    try:
        with open(_RESTRICT, encoding="ascii") as file:  # noqa: PTH123 - as in usdt.btf.files
            value = file.read().strip()
    except OSError:
        value = ""
    what = f"the kernel hides its addresses (kernel.kptr_restrict is {value or 'unknown'})"
    if value == "2":
        return f"{what}; allow them with: sysctl kernel.kptr_restrict=1"
    return f"{what}; reading them needs CAP_SYSLOG"
