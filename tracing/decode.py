"""From the ring buffer's bytes to lines or events, in bulk.

Records of one case have one length and one layout, so a run of them is one
``struct.iter_unpack``. What surrounds the values (probe, process, CPU, command) repeats from
record to record and is formatted once per distinct combination; the rest is one expression per
record, compiled for each plan (the standard library's dataclasses do the same).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from bpf.ringbuf import DISCARD, HEADER, runs, same
from tracing.ir import why_unreadable
from tracing.values import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tracing.forms import Form
    from tracing.plan import Output, Plan

__all__ = ("CONTEXT", "Decoder", "record_format")

CONTEXT = struct.Struct("=IIII16s")  # thread, process, CPU, case, command: bytes 8 to 40
_CASE_WORD = (HEADER + 20) // 4
_BATCH = 2048  # records formatted between two looks at the ring buffer
_CONTEXTS = 1 << 16  # distinct contexts kept; a tracer of short-lived threads forgets them all


class Decoder:
    """Turns records into what a form makes of them: JSON lines, text lines or events."""

    def __init__(self, form: Form) -> None:
        self._form = form
        self._cases: dict[int, tuple[struct.Struct, Callable[..., list[Any]]]] = {}
        self._renderers: dict[Plan, tuple[struct.Struct, Callable[..., list[Any]]]] = {}
        self._contexts = _Contexts(form)

    def add(self, number: int, probe: str, plan: Plan) -> None:
        """Announce a case before its first record comes."""
        self._contexts.probes[number] = probe
        if plan not in self._renderers:
            self._renderers[plan] = record_format(plan), compile_renderer(plan, self._form)
        self._cases[number] = self._renderers[plan]

    def batches(self, data: bytes) -> Iterator[list[Any]]:
        """Yield the lines or events of whole records, some thousands at a time, in order."""
        words = memoryview(data).cast("I")
        for start, step, count, header in runs(data):
            if header & DISCARD:
                continue
            done = 0
            while done < count:
                here = start + done * step
                word = (here >> 2) + _CASE_WORD
                length = same(words, word, step >> 2, min(count - done, _BATCH))
                layout, render = self._cases[words[word]]
                if len(self._contexts) > _CONTEXTS:
                    self._contexts.clear()
                rows = layout.iter_unpack(data[here : here + length * step])
                yield render(rows, self._contexts)
                done += length


class _Contexts(dict[bytes, Any]):
    # Bytes 8 to 40 of a record → what the form shows for them.
    def __init__(self, form: Form) -> None:
        self._form = form
        self.probes: dict[int, str] = {}

    def __missing__(self, key: bytes) -> Any:
        tid, pid, cpu, case, comm = CONTEXT.unpack(key)
        name = comm.split(b"\0", 1)[0].decode("utf-8", "surrogateescape")
        self[key] = value = self._form.context(pid, tid, cpu, name, self.probes[case])
        return value


def record_format(plan: Plan) -> struct.Struct:
    """The layout of a plan's records with the ring buffer's header before each."""
    parts = [f"={HEADER}xQ32s"]
    if plan.marks >= 0:
        parts.append("Q")
    parts += [_field(output) for output in plan.outputs if output.offset >= 0]
    return struct.Struct("".join(parts))


def _field(output: Output) -> str:
    padding = -output.size % 8
    match output.form:
        case "string" | "buffer":
            return f"q{output.size}s{padding}x"
        case "float":
            return "d" if output.node.type.size == 8 else "f4x"
        case "bytes":
            size = output.node.type.size
            return f"{size}s{output.size + padding - size}x"
    return "q" if output.node.type.kind is Kind.SIGNED and output.form != "hex" else "Q"


def compile_renderer(plan: Plan, form: Form) -> Callable[..., list[Any]]:
    """A function (rows, contexts) → list, made for one plan.

    Its source is made of names, numbers and the keys of the items; a form quotes the keys.
    """
    names = ["t", "c"] + (["m"] if plan.marks >= 0 else [])
    values = []
    for index, output in enumerate(plan.outputs):
        expression = _expression(index, output, form)
        values.append((output.key, expression))
        if output.form in ("string", "buffer"):
            names.append(f"n{index}")
        if output.offset >= 0:
            names.append(f"v{index}")
    source = f"lambda rows, contexts: [{form.record(values)} for {', '.join(names)} in rows]"
    function: Callable[..., list[Any]] = eval(source, dict(form.names))  # noqa: S307 - see above
    return function


def _expression(index: int, output: Output, form: Form) -> str:
    value, length = f"v{index}", f"n{index}"
    match output.form:
        case "comm":
            return form.comm()
        case "opaque":
            return form.unreadable(getattr(output.node, "reason", "unreadable"))
        case "string":
            return form.text(value, length, output.size)
        case "buffer":
            return form.text(value, length, 0)
        case "float":
            expression = form.real(value)
        case "bytes":
            expression = form.raw(value)
        case "hex":
            mask = (1 << 8 * output.node.type.size) - 1
            expression = form.hexadecimal(f"({value} & {mask})")
        case _:
            expression = form.integer(value)
    if output.fallible:
        unreadable = form.unreadable(why_unreadable(output.node))
        return f"({unreadable} if m & {1 << index} else {expression})"
    return expression
