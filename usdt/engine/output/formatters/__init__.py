"""Formatters: records as human-readable text, JSON lines or Python events.

formatter    the protocol, and what all of them share
text, json, event   the formatters; ``structures``: values of structure types

A formatter gives the *source* of the expression that makes one record's result; see
:mod:`usdt.engine.output.decode`, which compiles it. A line is one f-string around the values'
expressions.
"""

from __future__ import annotations

from usdt.engine.output.formatters.event import EventFormatter
from usdt.engine.output.formatters.formatter import Event, Formatter, escape
from usdt.engine.output.formatters.json import JsonFormatter
from usdt.engine.output.formatters.text import FoldedFormatter, TextFormatter, titled

__all__ = (
    "Event",
    "EventFormatter",
    "FoldedFormatter",
    "Formatter",
    "JsonFormatter",
    "TextFormatter",
    "escape",
    "titled",
)
