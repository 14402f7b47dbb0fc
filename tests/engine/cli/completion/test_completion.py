"""Completion in real shells: commands, options, processes and probes."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import resource
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import skips
from house import ROOT
from manysites import build_sites
from processes import running

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_BIN = Path(sys.executable).parent
_PROMPT = "READY> "
_ENVIRONMENT = {
    "PATH": f"{_BIN}:/usr/bin:/bin",
    "TERM": "dumb",
    "LC_ALL": "C.UTF-8",
    "PS1": _PROMPT,
}
_INTERACTIVE = {
    "bash": ("bash", "--norc", "--noprofile", "-i"),
    "zsh": ("zsh", "-f", "-i"),
}
_SET_UP = {
    "bash": "source {0}/bash-completion/completions/usdt",
    "zsh": "fpath=({0}/zsh/site-functions $fpath); autoload -Uz compinit; compinit -u -D",
}
# Keys that go to both ends of the line, which then prints its words and the last one.
_SHOW = "\x01printf '<%s>\\n' \x05 '=END='\r"


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("share")
    subprocess.run([sys.executable, ROOT / "tools/shell_completions.py", folder], check=True)
    return folder


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An ELF file with the probes shop:buy and shop:sell_all."""
    return build_sites(tmp_path_factory.mktemp("shop"), {"buy": ["4@$1"], "sell_all": ["4@$1"]})


def _completed(shell: str, scripts: Path, lines: list[str]) -> list[list[str]]:
    """What a tab makes of each line: its words in bash and zsh, the offered words in fish."""
    skips.need_program(shell, shell)
    if shell == "fish":
        script = "source $argv[1]; for line in $argv[2..]; complete -C $line; echo; end"
        source = scripts / "fish/vendor_completions.d/usdt.fish"
        done = subprocess.run(
            ["fish", "--no-config", "-c", script, source, *lines],
            env={**_ENVIRONMENT, "HOME": str(scripts)},
            capture_output=True,
            text=True,
            check=True,
        )
        answers = done.stdout.split("\n\n")[:-1]
        return [[row.partition("\t")[0] for row in one.splitlines()] for one in answers]
    with _terminal(shell, scripts) as type_keys:
        answers = [type_keys(f"{line}\t{_SHOW}") for line in lines]
    return [re.findall(r"^<(.*)>\r?$", one, re.MULTILINE)[:-1] for one in answers]


@contextlib.contextmanager
def _terminal(shell: str, scripts: Path) -> Iterator[Callable[[str], str]]:
    """A shell in a terminal: a function that types keys, and returns what is shown then."""
    main, other = pty.openpty()
    process = subprocess.Popen(
        _INTERACTIVE[shell], stdin=other, stdout=other, stderr=other, env=_ENVIRONMENT
    )
    os.close(other)

    def shown(end: str) -> str:
        # Keys are typed once a prompt shows that the shell reads them one by one.
        text = ""
        while not re.search(end, text, re.DOTALL):
            text += os.read(main, 65536).decode()
        return text

    def type_keys(keys: str) -> str:
        os.write(main, keys.encode())
        return shown(f"<=END=>.*{_PROMPT}")

    try:
        shown(_PROMPT)
        type_keys(f"{_SET_UP[shell].format(scripts)}; {_SHOW[1:]}")
        yield type_keys
    finally:
        process.kill()
        process.wait()
        os.close(main)


#: What is typed, and what its last word becomes.
_LINES = {
    "usdt lis": "list",
    "usdt trace --unwind dw": "dwarf",
    "usdt trace --kst": "--kstack",
    "usdt trace -p {pid}": "{pid}",
    "usdt help langua": "language",
    "usdt trace syscall:openat2": "syscall:openat2",
    "usdt list {path} sites:sell": "sites:sell_all",
    "usdt trace -p {pid} sites:sell": "sites:sell_all",
    "usdt trace '{path}:sites:se": "{path}:sites:sell_all",
    "usdt trace {path}:sites:se": "{path}:sites:sell_all",
    "usdt spans {path}:sites:buy {path}:sites:se": "{path}:sites:sell_all",
    "usdt check {path.parent}/si": "{path}",
}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete(scripts: Path, program: Path, shell: str) -> None:
    with running(program, "wait") as process:
        names = {"path": program, "pid": process.pid}
        lines = [line.format(**names) for line in _LINES]
        found = _completed(shell, scripts, lines)
    expected = [last.format(**names) for last in _LINES.values()]
    assert dict(zip(lines, (one[-1] for one in found), strict=True)) == dict(
        zip(lines, expected, strict=True)
    )


def test_bash_shows_all_probes_of_a_process(scripts: Path, program: Path) -> None:
    skips.need_program("bash", "bash")
    with running(program, "wait") as process, _terminal("bash", scripts) as type_keys:
        shown = type_keys(f"usdt trace -p {process.pid} \t\t\t{_SHOW}")
    assert re.search(r"^buy +sell_all", shown, re.MULTILINE), shown


def test_names_of_processes_are_offered_too(program: Path) -> None:
    with running(program, "wait"):
        assert _asked("usdt trace -p sit") == ["plain\tsites"]


def test_what_cannot_be_completed_says_nothing() -> None:
    assert _asked("usdt trace -p 4000000 pro") == ["file\tpro"]
    assert _asked("usdt trace /no/such/file:pro") == ["file\t/no/such/file:pro"]
    assert _asked("usdt trace no-such-library:pro")[0].startswith("file")
    assert _asked("usdt no-such-command ")[0].startswith("plain\t")


def test_an_answer_needs_little_time(program: Path) -> None:
    used = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert "plain\tsites:buy" in _asked(f"usdt list {program} s")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(used) < 0.3  # of a processor, as others may use it too


def _asked(line: str) -> list[str]:
    # What the command answers bash.
    done = subprocess.run(
        [_BIN / "usdt"],
        env={**_ENVIRONMENT, "_USDT_COMPLETE": "bash_complete", "COMP_LINE": line},
        capture_output=True,
        text=True,
        check=True,
    )
    assert not done.stderr
    return done.stdout.splitlines()
