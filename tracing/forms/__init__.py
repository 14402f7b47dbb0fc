"""What records become: JSON lines, text lines for eyes, or Python events.

A form gives the *source* of the expression that makes one record's result; see
:mod:`tracing.decode`, which compiles it. A line is one f-string around the values' expressions.
"""

from __future__ import annotations

from tracing.forms.eventform import EventForm
from tracing.forms.form import Event, Form, escape
from tracing.forms.jsonform import JsonForm
from tracing.forms.textform import FoldedForm, TextForm, titled

__all__ = ("Event", "EventForm", "FoldedForm", "Form", "JsonForm", "TextForm", "escape", "titled")
