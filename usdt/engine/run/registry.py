"""The kinds of probes, and the modules that provide them.

The providers are layered above the engine, so this table names their modules instead of importing
them. It is the only place that does so. A module is imported for the first probe of its kind. One
more module reads debug information for the probes of the kernel, one has the numbers of system
calls. Completion in shells asks further modules for names.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from usdt.base.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from usdt.engine.language.tree import ProbeText
    from usdt.engine.run.protocols import ProbeProvider, TargetProvider, VariableTypeReader

__all__ = (
    "PROBE_KINDS",
    "ProbeKind",
    "kind_of",
    "probe_names",
    "provider_of",
    "system_call_numbers",
    "target_provider",
    "variable_type_reader",
)

_FILES = "usdt.targets.provider"
_KERNEL = "kprobe.provider"
_NAMES = {_FILES: "usdt.targets.probe_names", _KERNEL: "kprobe.probe_names"}
_SYSTEM_CALLS = "kprobe.tracepoints.syscall_numbers"
_DEBUG_INFORMATION = "usdt.dwarf.variable_types"


@frozen
class ProbeKind:
    """A kind of probe.

    Attributes:
        name: the text before the first colon of a probe.
        in_kernel: whether the probed code is the kernel's.
        has_return: whether a probe of this kind can also fire at the function's return.
        provider: the module whose ``PROVIDER`` attaches these probes.
    """

    name: str
    in_kernel: bool
    has_return: bool
    provider: str


PROBE_KINDS = {
    kind.name: kind
    for kind in (
        ProbeKind("usdt", in_kernel=False, has_return=False, provider=_FILES),
        ProbeKind("uprobe", in_kernel=False, has_return=True, provider=_FILES),
        ProbeKind("kprobe", in_kernel=True, has_return=True, provider=_KERNEL),
        ProbeKind("fentry", in_kernel=True, has_return=True, provider=_KERNEL),
        ProbeKind("tracepoint", in_kernel=True, has_return=False, provider=_KERNEL),
        ProbeKind("rawtp", in_kernel=True, has_return=False, provider=_KERNEL),
        *(
            ProbeKind(name, in_kernel=True, has_return=False, provider=_KERNEL)
            for name in ("interval", "profile", "software", "hardware", "watchpoint")
        ),
        ProbeKind("syscall", in_kernel=True, has_return=True, provider=_KERNEL),
    )
}


def kind_of(request: ProbeText) -> ProbeKind:
    """Return the kind of a probe."""
    return PROBE_KINDS[request.kind]


def provider_of(kind: ProbeKind) -> ProbeProvider:
    """Return the provider that attaches the kernel's probes of a kind."""
    provider: ProbeProvider = import_module(kind.provider).PROVIDER
    return provider


def target_provider() -> TargetProvider:
    """Return the provider that finds processes and attaches the probes of their files."""
    provider: TargetProvider = import_module(_FILES).PROVIDER
    return provider


def variable_type_reader() -> VariableTypeReader:
    """Return the function that reads types of variables in debug information."""
    reader: VariableTypeReader = import_module(_DEBUG_INFORMATION).type_of_variable
    return reader


def system_call_numbers() -> Mapping[str, int]:
    """Return the numbers of system calls by their names."""
    numbers: Mapping[str, int] = import_module(_SYSTEM_CALLS).numbers()
    return numbers


def probe_names(
    kind: ProbeKind, text: str, targets: Sequence[str], pids: Sequence[int]
) -> Iterable[str]:
    """Return names of probes of a kind, without the kind, that may continue a text.

    Args:
        kind: the kind.
        text: the beginning of a name.
        targets: files in which probes are searched.
        pids: processes whose files are searched.

    Raises:
        TracingError: there is none, or this system does not show them.
    """
    names: Callable[[str, str, Sequence[str], Sequence[int]], Iterable[str]]
    names = import_module(_NAMES[kind.provider]).probe_names
    return names(kind.name, text, targets, pids)
