"""What records become: JSON lines, text lines for eyes, or Python events.

A form gives the *source* of the expression that makes one record's result; see
:mod:`usdt.engine.output.decode`, which compiles it. A line is one f-string around the values'
expressions.
"""

from __future__ import annotations

from usdt.engine.output.formatters.event import EventForm
from usdt.engine.output.formatters.formatter import Event, Form, escape
from usdt.engine.output.formatters.json import JsonForm
from usdt.engine.output.formatters.text import FoldedForm, TextForm, titled

__all__ = ("Event", "EventForm", "FoldedForm", "Form", "JsonForm", "TextForm", "escape", "titled")
