"""Which probes a pattern means, and which one somebody may have meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.base.text import closest, plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from usdt.engine.language.tree import ProbeText
    from usdt.probes.probe import Probe

__all__ = ("closest_match", "fits", "is_typo_of", "matching", "missing_probe")


def matching(request: ProbeText, probes: Iterable[Probe]) -> list[Probe]:
    """Return the probes that match the request's patterns (``*``, ``?``, ``[…]``)."""
    return [probe for probe in probes if fits(request, probe.provider, probe.name)]


def fits(request: ProbeText, provider: str, name: str) -> bool:
    """Return True if a probe matches; ``a-b`` also matches ``a__b``, as in DTrace."""
    return _fits(provider, request.provider) and any(
        _fits(name, form) for form in request.name_forms
    )


def _fits(name: str, pattern: str) -> bool:
    # A pattern is compiled to a regular expression, which most names need not be.
    if not any(character in pattern for character in "*?["):
        return name == pattern
    from fnmatch import fnmatchcase  # noqa: PLC0415 - for patterns alone

    return fnmatchcase(name, pattern)


def closest_match(wanted: str, known: Iterable[str]) -> str | None:
    """Return the known name most similar to a misspelt one, or None."""
    return closest(wanted, known, 0.7) or None


def missing_probe(where: str, wanted: str, names: Sequence[str]) -> str:
    """Return the message that ``where`` has no probe of a name, but those of ``names``."""
    if not names:
        return f"{where}: no USDT probes, so no {wanted}"
    near = closest_match(wanted, names)
    hint = f"nearest is {near}" if near else plural(len(names), "other probe")
    return f"{where}: no probe {wanted}; {hint}"


def is_typo_of(one: str, other: str) -> bool:
    """Return True if provider and name are each similar to those of another probe.

    Two swapped letters in a provider of four letters still count as similar.
    """
    from difflib import SequenceMatcher  # noqa: PLC0415 - only for a message

    pairs = zip(one.split(":", 1), other.split(":", 1), strict=True)
    return all(SequenceMatcher(None, a, b).ratio() >= 0.75 for a, b in pairs)
