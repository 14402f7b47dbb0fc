"""Events of other machines as text."""

from __future__ import annotations

import json
from typing import Any

from usdt.base.text import printable

__all__ = ("event_line",)


def event_line(found: dict[str, Any]) -> str:
    """Return an event on one line: when, who, the probe and its items."""
    when = found.get("timestamp") or found.get("realtime") or ""
    who = f"{found.get('comm', '?')}:{found.get('pid', '?')}"
    parts = [str(when), who, str(found["probe"])]
    if "duration" in found:
        parts.append(f"{found['duration']} ns")
    for name in ("args", "end_args"):
        items = found.get(name)
        if isinstance(items, dict):
            parts += [f"{item}={_text(value)}" for item, value in items.items()]
    return printable("  ".join(part for part in parts if part))


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
