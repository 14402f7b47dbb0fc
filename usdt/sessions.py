"""``usdt.Session``: many probes at once, callbacks, and aggregations as Python mappings."""

from __future__ import annotations

from usdt.engine.api.aggregates import Aggregate, Histogram
from usdt.engine.api.sessions import AnySession

__all__ = ("Aggregate", "Histogram", "Session")


class Session(AnySession):
    """Probes and aggregations on the same processes; a context manager.

    Args:
        pid: a process or several; without it probes name their files.
        everything: every process.
        follow: children of ``pid`` as well.
        buffer: bytes of each ring buffer of events.
        max_string: bytes that str() keeps of a string.
        patience: seconds to wait for a library that has a probe which is nowhere yet.
        lines: stacks have source lines, and inlined functions are frames of their own.

    Raises:
        TracingError: from its methods, as :func:`usdt.attach` has it.

    Example:
        >>> with usdt.Session(pid=1234) as session:
        ...     sizes = session.hist("myapp:request(arg1)")
        ...     by_name = session.count("myapp:request", by="str(arg0)")
        ...     session.on("myapp:error(str(arg0))", print)
        ...     session.run(10)
        >>> by_name["GET /"]
        42
    """
