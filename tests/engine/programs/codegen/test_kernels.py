"""What programs need of the kernel."""

from __future__ import annotations

import pytest

from usdt.base.errors import NotSupported
from usdt.engine.programs.check.nodes import constant
from usdt.engine.programs.codegen.kernels import check_kernel
from usdt.engine.programs.events import Event, EventKind
from usdt.engine.programs.typed import Emit, If, Leave, Loop, MapLength, Scalar, saved
from usdt.engine.programs.types import INT64
from usdt.engine.programs.variables import MapVariable, Variable


def test_a_loop_needs_bpf_loop() -> None:
    loop = Loop(constant(3), None, (Leave("continue"),))
    check_kernel((If(constant(1), (loop,)),), "5.17.0-1-amd64")
    with pytest.raises(NotSupported, match=r"a loop in a program needs Linux 5\.17"):
        check_kernel((If(constant(1), (loop,)),), "5.16.18")


def test_steps_of_expressions_are_looked_at() -> None:
    variable = Variable(1, INT64)
    length = Scalar(saved(variable), INT64, ((variable, MapLength(MapVariable(0, "@x"))),))
    statement = Emit(Event(0, EventKind.PRINT, (INT64,)), (length,))
    check_kernel((statement,), "5.15.0")
    with pytest.raises(NotSupported, match=r"len\(\) of a map needs Linux 5.13"):
        check_kernel((statement,), "5.10.0-30-arm64")
