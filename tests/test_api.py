"""The Python interface: what is public, what it says of itself; importing it does nothing."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from importlib.metadata import version
from types import ModuleType, UnionType
from typing import Any

import pytest
from house import ROOT
from skips import need_program

import kprobe
import usdt
import usdt.bcc
import usdt.provider
import usdt.testing
from usdt import bpf
from usdt.engine.api.events import Events
from usdt.engine.api.sessions import Session

PUBLIC: dict[str, tuple[ModuleType, ...]] = {
    "bpf": (bpf,),
    "kprobe": (kprobe,),
    "usdt": (usdt, usdt.bcc, usdt.provider, usdt.testing),
}
#: Values: nothing can be done with them, and nothing goes wrong. They say what they hold.
RECORDS = {"Event", "Hits", "Operand", "Probe", "Site", "MapSpec", "ProgramSpec", "Unreadable"}
RECORDS |= {
    "ProgramEvent",
    "TruncatedDict",
    "TruncatedHex",
    "TruncatedInt",
    "TruncatedList",
    "TruncatedStr",
    "Value",
}
#: Types for annotations.
ALIASES = {"EventValue"}
#: Numbers and registers of instructions, named as the kernel's headers name them.
INSTRUCTIONS = {"Alu", "Helper", "Jump", "ProgType", "Reg"}
#: What needs no sentence on errors: it reports none, or they stand with what makes it.
MADE_BY = {"Attachment", "ProgramLink", "Histogram", "Span", "Assembler", "MapType"}
#: Written by others than these classes; examples stand in docs/bcc.md.
HELPERS = {"header", "kernel_headers"}


def public() -> list[tuple[str, Any]]:
    """Every name that may be imported, and what it is."""
    return [
        (f"{module.__name__}.{name}", getattr(module, name))
        for modules in PUBLIC.values()
        for module in modules
        for name in module.__all__
    ]


NAMES = public()


@pytest.mark.parametrize(("name", "thing"), NAMES, ids=[name for name, _ in NAMES])
def test_every_public_name_says_what_it_is(name: str, thing: Any) -> None:
    text = inspect.getdoc(thing)
    assert text, name
    short = name.rpartition(".")[2]
    if isinstance(thing, type) and issubclass(thing, Exception):
        assert issubclass(thing, usdt.TracingError)
        assert isinstance(getattr(usdt, short, None) or getattr(kprobe, short), type)
    elif short in INSTRUCTIONS:
        assert thing.__module__.startswith("usdt.bpf.")
    elif short in ALIASES:
        assert isinstance(thing, UnionType)
    elif short in RECORDS:
        assert "Attributes:" in text or len(text.splitlines()) == 1, text
    elif isinstance(thing, ModuleType):
        assert "import" in text
    elif short not in HELPERS | {"Assembler", "MapType"}:
        assert "Examples:" in text, f"{name} does not show how it is used"
        if short not in MADE_BY:
            assert "Raises" in text, f"{name} does not say what goes wrong"


@pytest.mark.parametrize(
    "thing",
    [usdt.Session, kprobe.Session, usdt.Manager, usdt.Provider, Events, bpf.Map, bpf.BTF],
    ids=lambda thing: f"{thing.__module__}.{thing.__name__}",
)
def test_every_public_method_says_what_it_does(thing: type) -> None:
    methods = inspect.getmembers(thing, lambda m: inspect.isfunction(m) or isinstance(m, property))
    silent = [n for n, m in methods if not n.startswith("_") and not inspect.getdoc(m)]
    assert methods
    assert not silent


def test_methods_that_attach_say_what_goes_wrong() -> None:
    for name in ("attach", "count", "hist", "latency", "on", "stats"):
        text = inspect.getdoc(getattr(Session, name)) or ""
        assert "Raises:" in text, name
        assert "Examples:" in text, name


def test_arguments_are_told_of() -> None:
    for function in (usdt.attach, kprobe.attach, usdt.list_probes, usdt.testing.traced):
        text = inspect.getdoc(function) or ""
        for name in inspect.signature(function).parameters:
            assert f"    {name}: " in text, f"{function.__name__}() does not tell of {name}"


def test_a_front_has_the_errors_it_raises() -> None:
    for module in (usdt, kprobe):
        for name in ("LanguageError", "NotSupported", "ProbeNotFound", "SyscallError"):
            assert getattr(module, name) is getattr(sys.modules["usdt.base.errors"], name)


def test_names_that_are_not_there() -> None:
    for module in (bpf, kprobe, usdt):
        with pytest.raises(AttributeError, match=f"module '{module.__name__}' has no attribute"):
            _ = module.nothing
        assert set(module.__all__) <= set(dir(module))


_UNTOUCHED = """
import json, sys
opened = []
sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)
import kprobe, usdt
from usdt import bpf
light = sorted(sys.modules)
for module in (bpf, kprobe, usdt):
    for name in module.__all__:
        getattr(module, name)
import usdt.bcc, usdt.provider, usdt.testing
print(json.dumps([light, [path for path in opened if path.startswith(("/sys", "/proc", "/dev"))]]))
"""


@pytest.mark.parametrize("privileged", [True, False], ids=["as we are", "without privileges"])
def test_importing_needs_no_root_and_does_nothing(privileged: bool) -> None:
    before: list[str] = []
    if not privileged and os.geteuid() == 0:
        before = [need_program("setpriv", "util-linux"), "--bounding-set=-all", "--no-new-privs"]
    script = f"import sys; sys.path[:0] = {sys.path!r}\n{_UNTOUCHED}"
    done = subprocess.run(
        [*before, sys.executable, "-B", "-c", script],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.returncode, done.stderr
    loaded, opened = json.loads(done.stdout)
    # No ctypes: no system call that Python itself does not make.
    assert not {"ctypes", "elftools", "click"} & set(loaded)
    assert not opened


@pytest.mark.parametrize("package", [usdt, kprobe], ids=lambda package: package.__name__)
def test_dir_has_public_names_only(package: ModuleType) -> None:
    assert dir(package) == sorted([*package.__all__, "__version__"])


def test_version_is_that_of_the_distribution() -> None:
    assert usdt.__version__ == kprobe.__version__ == version("usdt-toolkit")
