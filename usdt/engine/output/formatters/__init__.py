"""Formatters: records as human-readable text, JSON lines or Python events.

formatter           the protocol, and helpers that all formatters share
text, json, event   the formatters; ``structures``: values of structure types

A formatter returns the *source* of the expression that makes the result for one record;
:mod:`usdt.engine.output.decode` compiles it. A line is one f-string around the expressions of the
values.
"""

from __future__ import annotations

from usdt.engine.output.formatters.event import EventFormatter
from usdt.engine.output.formatters.formatter import Event, EventValue, Formatter, Span, escape
from usdt.engine.output.formatters.json import JsonFormatter
from usdt.engine.output.formatters.text import FoldedFormatter, TextFormatter, titled

__all__ = (
    "Event",
    "EventFormatter",
    "EventValue",
    "FoldedFormatter",
    "Formatter",
    "JsonFormatter",
    "Span",
    "TextFormatter",
    "escape",
    "titled",
)
