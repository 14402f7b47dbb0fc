"""The kernel's event tracer, used without BPF: definitions in tracefs, records read as they are.

Each run has an instance of its own (a buffer, switches and filters apart from everybody else's)
and a group of its own for what it defines. Both bear the process ID and start time of their maker,
so that what a killed run left behind can be told from what is in use.
"""

from __future__ import annotations
