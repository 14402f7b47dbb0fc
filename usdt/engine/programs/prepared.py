"""The text of a program → its parts, ready to be attached."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from usdt.base.frozen import frozen
from usdt.engine.programs.check.site import kernel_types
from usdt.engine.programs.check.state import ProgramState
from usdt.engine.programs.included.headers import header_reader
from usdt.engine.programs.probes import probe_requests
from usdt.engine.programs.syntax.hints import warnings_of
from usdt.engine.programs.syntax.macros import expand_macros
from usdt.engine.programs.syntax.parser import parse_program
from usdt.engine.programs.syntax.settings import settings_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from usdt.btf.reader import Btf
    from usdt.engine.programs.session import ProbeRequest
    from usdt.engine.programs.syntax.settings import Settings
    from usdt.engine.programs.syntax.source import Source

__all__ = ("MODES", "PreparedProgram", "prepare_program")

#: Kinds of probes that run alone, each when it is asked for: nothing of the system fires them.
MODES = ("bench", "test")


@frozen
class PreparedProgram:
    """A program that is parsed; its types are checked when its probes are found.

    Attributes:
        requests: its attach points.
        settings: what its ``config`` and the environment set.
        state: the state of its check.
        warnings: what is doubtful in it, each with its place.
    """

    requests: tuple[ProbeRequest, ...]
    settings: Settings
    state: ProgramState
    warnings: tuple[str, ...] = ()


def prepare_program(
    source: Source,
    words: Sequence[str],
    *,
    unsafe: bool,
    folders: Sequence[str] = (),
    headers: Sequence[str] = (),
    mode: str = "",
    helper_errors: bool = False,
) -> PreparedProgram:
    """Parse a program.

    Args:
        source: its text.
        words: the arguments of the script: ``$1`` and the following, and its options:
            ``--name=value``, ``--name``.
        unsafe: whether functions that change the system are allowed.
        folders: where headers are looked for, besides the usual places.
        headers: headers that are included before the program.
        mode: ``test`` or ``bench``: the program has these probes alone; else all others.
        helper_errors: whether memory that cannot be read and keys that are not there are reported.

    Raises:
        ProgramError: the program is not valid, or has no such probes; the error names the place.
    """
    folder = os.path.dirname(source.name)  # noqa: PTH120 - pathlib costs an import
    reader = header_reader(folder, folders)
    program = parse_program(source, read_header=reader, headers=headers)
    if program.imports:
        from usdt.engine.programs.included.imports import with_imports  # noqa: PLC0415 - few programs

        source, program = with_imports(source, program, folders)
    program = expand_macros(source, program)
    settings = settings_of(program, source)
    state = ProgramState(
        source,
        words,
        max_string=settings.max_string,
        began=time.clock_gettime_ns(time.CLOCK_MONOTONIC),
        unsafe=unsafe,
        stack_mode=settings.stack_mode,
        trailer=settings.trailer,
        settings=settings.record,
        helper_errors=helper_errors,
    )
    every = probe_requests(program, source, state.arguments)
    if not every:
        raise source.error(0, "no probe to attach: expected one at least, such as begin { … }")
    requests = tuple(one for one in every if (one.kind if one.kind in MODES else "") == mode)
    if not requests:
        kind = every[0].kind
        hint = f"--{kind} runs those" if kind in MODES else f"--{mode} runs {mode}:NAME alone"
        start = every[0].probe.start
        raise source.error(start, f"no probe to attach, this is one of the kind {kind}: {hint}")
    state.look_at_calls(program.probes)
    state.declare(program.maps)
    if program.definitions:
        from usdt.engine.programs.definitions import Definitions  # noqa: PLC0415 - few programs

        state.defined = Definitions(program.definitions, source, _kernel_btf)
    written = dict.fromkeys(one.probe for one in requests)
    warnings = tuple(warnings_of([*written], source))
    return PreparedProgram(requests, settings, state, warnings)


def _kernel_btf() -> Btf | None:
    known = kernel_types()
    return None if known is None else known.btf
