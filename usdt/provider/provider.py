"""A provider: a named set of probes that are loaded together."""

from __future__ import annotations

import re
import threading
import weakref
from typing import TYPE_CHECKING, Self

from usdt.arch.stubs import STUBS
from usdt.base.machine import PROCESS_MACHINE
from usdt.base.text import plural
from usdt.provider.image import MAX_ARGUMENTS, ProbeImage, build
from usdt.provider.loading import Library, ProviderError
from usdt.provider.probe import FiredProbe, argument_type
from usdt.provider.span import Span

if TYPE_CHECKING:
    from usdt.arch.stubs import Stub

__all__ = ("Provider", "ProviderError", "find_probe")

_loaded: weakref.WeakSet[Provider] = weakref.WeakSet()
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}", re.ASCII)


class Provider:
    """A named set of probes of this program.

    Define probes, then load() them; other threads may run meanwhile. Before load() and after
    unload(), a probe is not enabled and fire() does nothing. A forked child has the probes too.
    ``with provider:`` loads and unloads.

    Args:
        name: the text before the colon in ``provider:name``: letters, digits and underscores.

    Raises:
        ProviderError: the name is not valid.

    Examples:
        >>> shop = Provider("shop")
        >>> order = shop.probe("order", int, str)
        >>> order.enabled
        0
    """

    def __init__(self, name: str) -> None:
        self.name = _checked(name, "a provider")
        self._probes: dict[str, FiredProbe] = {}
        self._spans: dict[str, Span] = {}
        self._library: Library | None = None
        self._lock = threading.RLock()

    @property
    def loaded(self) -> bool:
        """True if tracers can find the probes."""
        return self._library is not None

    @property
    def probes(self) -> tuple[FiredProbe, ...]:
        """The probes, in the order of their definition."""
        return tuple(self._probes.values())

    def probe(self, name: str, *arguments: str | type) -> FiredProbe:
        """Define a probe.

        Args:
            name: the text after the colon.
            arguments: at most 12 of ``int`` (s64), ``float`` (8 bytes), ``bool``, ``str``,
                ``bytes``, and "u8", "u16", "u32", "u64", "s8" … "s64", "f32", "f64".

        Raises:
            ProviderError: a name or type is not valid, the probe exists, or the provider is loaded,
                because a loaded object cannot grow.
        """
        types = tuple(argument_type(kind) for kind in arguments)
        full = f"{self.name}:{_checked(name, 'a probe')}"
        if len(types) > MAX_ARGUMENTS:
            raise ProviderError(f"{full}: {len(types)} arguments; at most {MAX_ARGUMENTS} fit")
        with self._lock:
            if self._library is not None:
                raise ProviderError(f"{full}: {self.name} is loaded; define probes before load()")
            if name in self._probes:
                raise ProviderError(f"{full} is defined already")
            probe = self._probes[name] = FiredProbe(self.name, name, types)
        return probe

    def span(self, name: str) -> Span:
        """Define two probes around an operation: NAME__start and NAME__done, with the duration.

        Use the span as a decorator of a function, async or not, or in a ``with`` statement. The
        same name returns the same object. See :class:`usdt.provider.Span`.

        Raises:
            ProviderError: as :meth:`probe`.
        """
        with self._lock:
            if name not in self._spans:
                start = self.probe(f"{name}__start", "u64", str)
                done = self.probe(f"{name}__done", "u64", "u64", str, str)
                self._spans[name] = Span(name, start, done)
            return self._spans[name]

    def load(self, *, path: str | None = None) -> None:
        """Make the probes visible to tracers; idempotent.

        Args:
            path: a new file to write the object to, for tracers that cannot read a memfd; removed
                at unload(). None for a memfd.

        Raises:
            ProviderError: the CPU is not supported, the provider has no probes, or the object
                cannot be written or loaded.
        """
        with self._lock:
            if self._library is not None:
                return
            if not self._probes:
                raise ProviderError(f"{self.name} has no probes; define some before load()")
            images = [ProbeImage(probe.name, probe.arguments) for probe in self._probes.values()]
            image = build(self.name, images, _stub())
            library = Library(image, f"usdt-{self.name}", path)
            for index, probe in enumerate(self._probes.values()):
                probe.connect(library, index)
            self._library = library
            _loaded.add(self)

    def unload(self) -> None:
        """Unload the probes; idempotent. Calls of fire() in other threads complete safely."""
        with self._lock:
            for probe in self._probes.values():
                probe.disconnect()
            self._library = None
            _loaded.discard(self)

    def __enter__(self) -> Self:
        self.load()
        return self

    def __exit__(self, *error: object) -> None:
        self.unload()

    def __repr__(self) -> str:
        state = "loaded" if self.loaded else "not loaded"
        return f"<provider {self.name}, {plural(len(self._probes), 'probe')}, {state}>"


def find_probe(provider: str, name: str) -> FiredProbe | None:
    """Return the probe ``provider:name`` of this process if it is loaded, else None."""
    for loaded in list(_loaded):
        for probe in loaded.probes:
            if (probe.provider, probe.name) == (provider, name):
                return probe
    return None


def _checked(name: str, what: str) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ProviderError(
            f"{name!r} cannot name {what}: letters, digits and underscores do, 128 at most"
        )
    return name


def _stub() -> Stub:
    if PROCESS_MACHINE not in STUBS:
        known = ", ".join(STUBS)
        raise ProviderError(
            f"no probes can be made for the CPU {PROCESS_MACHINE}; for {known} they can"
        )
    return STUBS[PROCESS_MACHINE]
