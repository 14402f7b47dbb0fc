"""usdt.targets.search.executables: PATH, and the interpreters of scripts."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from processes import copied_sleep, until

from usdt.base.errors import TargetError
from usdt.procfs.mapped_files import executable_of
from usdt.targets.search.executables import find_program, program_chain, resolve_program


def script(path: Path, first_line: str) -> Path:
    """An executable text."""
    path.write_text(first_line + "\nsleep 60\n")
    path.chmod(0o755)
    return path


def test_programs_are_found_as_a_shell_finds_them(tmp_path: Path) -> None:
    copied_sleep(tmp_path / "probing")
    (tmp_path / "plain").write_text("not executable")
    (tmp_path / "folder").mkdir()
    environment = {"PATH": f"/nonexistent:{tmp_path}:/usr/bin:/bin"}
    assert find_program("probing", environment=environment) == f"{tmp_path}/probing"
    assert find_program("sh", environment=environment) == shutil.which("sh", path="/usr/bin:/bin")
    for name in ("plain", "folder", "nosuchprogram", f"{tmp_path}/plain", ""):
        assert find_program(name, environment=environment) is None
    assert find_program(f"{tmp_path}/probing", environment={}) == f"{tmp_path}/probing"


@pytest.mark.parametrize(
    "first_line",
    [
        pytest.param("#!/bin/sh", id="plain"),
        pytest.param("#! \t/bin/sh -e", id="blanks and an argument"),
        pytest.param("#!/usr/bin/env sh", id="env"),
        pytest.param("#!/usr/bin/env -S sh -e", id="env -S"),
        pytest.param("#!/usr/bin/env -iS A=1 sh -e", id="env -S with a variable"),
    ],
)
def test_the_interpreter_is_what_really_runs(tmp_path: Path, first_line: str) -> None:
    path = script(tmp_path / "script", first_line + "\nread x")
    with subprocess.Popen([path], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        program = Path(resolve_program(str(path))).resolve()
        until(
            lambda: Path(found.path if (found := executable_of(child.pid)) else "") == program,
            program,
        )
        child.kill()


def test_every_file_of_the_chain_is_given(tmp_path: Path) -> None:
    inner = script(tmp_path / "inner", f"#!{sys.executable}")
    outer = script(tmp_path / "outer", f"#!{inner} -x")
    assert program_chain(str(outer)) == [str(outer), str(inner), sys.executable]


def test_a_text_without_interpreter_is_run_by_the_shell(tmp_path: Path) -> None:
    assert program_chain(str(script(tmp_path / "text", "echo"))) == [f"{tmp_path}/text", "/bin/sh"]


def test_a_program_is_its_own_chain() -> None:
    assert program_chain(sys.executable) == [sys.executable]


@pytest.mark.parametrize("arguments", ["nosuchprogram", "sh -e", "-i sh", "A=1"])
def test_what_env_cannot_find_ends_the_chain(tmp_path: Path, arguments: str) -> None:
    path = script(tmp_path / "script", f"#!/usr/bin/env {arguments}")
    assert program_chain(str(path)) == [str(path), "/usr/bin/env"]


def test_scripts_that_run_each_other_are_refused(tmp_path: Path) -> None:
    path = script(tmp_path / "loop", f"#!{tmp_path}/loop")
    with pytest.raises(TargetError, match=r"loop: more than 5 nested interpreters"):
        program_chain(str(path))


def test_a_missing_interpreter_is_named(tmp_path: Path) -> None:
    path = script(tmp_path / "script", "#!/nonexistent/interpreter")
    message = f"^{path}: its interpreter /nonexistent/interpreter: No such file or directory$"
    with pytest.raises(TargetError, match=message):
        program_chain(str(path))


def test_a_missing_program_is_named() -> None:
    with pytest.raises(TargetError, match=r"^/nonexistent: No such file or directory$"):
        program_chain("/nonexistent")
