"""Likely mistakes of new users: one line says on what, what was found, and what to do."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from fixtures import build
from house import ROOT
from skips import need_program
from tracing_tools import one_error, run_usdt

from usdt.engine.cli.help.topics import TOPICS
from usdt.engine.language import BUILTINS, parse_items
from usdt.engine.language.tree import FUNCTIONS

if TYPE_CHECKING:
    from pathlib import Path

ABSENT = 4194303  # PID_MAX_LIMIT of 64-bit kernels, less one

# Words of a command → its error. {there} is the folder of the files, {args} a program with probes.
FILES = [
    ("list ./nosuch", "./nosuch: no such file"),
    ("list nosuch-program", "nosuch-program: no file, library or program of that name (searched"),
    ("list {there}/empty", "{there}/empty: empty file, not an ELF file"),
    ("list {there}/text", "{there}/text: not an ELF file"),
    ("list {there}/script", "{there}/script: a script, not an ELF file; its program is /bin/sh"),
    ("list {there}/odd", "{there}/odd: a script, not an ELF file; its program is not named"),
    ("list {there}", "{there}: is a directory; name a program or library in it"),
    ("list {there}/cut", "{there}/cut: truncated: "),
    (
        "list {there}/plain",
        "{there}/plain: no USDT probes; list functions with: usdt list {there}/plain 'uprobe:*'",
    ),
    ("info {there}/plain a:b", "{there}/plain: no USDT probes; list functions with: usdt list"),
    ("info {there}/plain uprobe:{there}/plain:mian", "{there}/plain: no function mian; nearest is"),
    (
        "info uprobe:{there}/stripped:main",
        "{there}/stripped: no function main: the file has no function symbols; the file is st",
    ),
    ("report {there}/text", "{there}/text: not a recording of usdt record; it begins with"),
    ("report {there}/nosuch", "{there}/nosuch: cannot be read: No such file or directory"),
]
PROBES = [
    ("list {args} args:cuont1", "{args}: no probe args:cuont1; nearest is args:count1 (list them"),
    ("list {args} x:y*", "{args}: no probe x:y* among 19 (list them with: usdt list {args})"),
    ("info args:count1", "no target: give a file, a library or -p PID; usdt list -a searches all"),
    (f"list -p {ABSENT}", f"no process {ABSENT}; list processes with: ps -e"),
    ("list -p nosuch-name", "-p nosuch-name: no process of this name; list them with: ps -e"),
    ("list -p ''", "-p '': no process of this name; list them with: ps -e"),
    ("list -p {own}", "process {own}: no USDT probes; list functions with: usdt list -p {own} 'up"),
]


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with files that are no programs, and programs without probes or symbols."""
    folder = tmp_path_factory.mktemp("files")
    for name, contents in (("empty", ""), ("text", "hello\n"), ("script", "#!/bin/sh\nls\n")):
        (folder / name).write_text(contents)
    (folder / "odd").write_text("#!\n")
    source = folder / "plain.c"
    source.write_text("int main(void) { return 0; }\n")
    compiler = need_program("gcc")
    subprocess.run([compiler, "-o", folder / "plain", source], check=True)
    subprocess.run([compiler, "-s", "-o", folder / "stripped", source], check=True)
    (folder / "cut").write_bytes((folder / "plain").read_bytes()[:3000])
    return folder


@pytest.mark.parametrize(("words", "error"), FILES + PROBES, ids=[w for w, _ in FILES + PROBES])
def test_one_line_says_what_is_wrong_and_what_to_do(words: str, error: str, there: Path) -> None:
    with subprocess.Popen(["sleep", "100"]) as sleeping:
        known = {"there": there, "args": build("default", "args"), "own": sleeping.pid}
        command = [word.strip("'").format(**known) for word in words.split(" ")]
        try:
            done = run_usdt(*command)
        finally:
            sleeping.kill()
    assert one_error(done).startswith(error.format(**known))


def test_a_full_disk_is_named() -> None:
    with open("/dev/full", "w") as full:  # noqa: PTH123
        done = run_usdt("list", build("default", "args"), stdout=full)
    assert one_error(done) == "write to standard output: No space left on device"


ITEMS = [
    (["a:b", "arg0"], "found an item where a probe belongs: expected PROVIDER:NAME(ITEM, …); a "),
    (["a:b", 'comm=="x"'], "found an item where a probe belongs: expected PROVIDER:NAME(ITEM, …),"),
    (["a:b", "pid"], "found an item where a probe belongs: expected PROVIDER:NAME(ITEM, …); a pro"),
    (["a:b(arg0"], "this '(' is not closed: expected ')' at the end, at column 4"),
    (["a:b(arg0))"], "found ')', but nothing is open that it would close, at column 10"),
    (["a:b arg0"], "found a blank in a name: expected '(' before items, or the name in double"),
    (["a:b(comm == 'nginx')"], "found 'nginx': strings stand in double quotes, at column 13"),
    (["a:b(arg0 = 1)"], "'=' would assign: expected '==' to compare, at column 10"),
    ([""], "found the end where a name belongs: expected PROVIDER:NAME, at column 1"),
    (["a::b"], "found ':' where a name belongs: expected PROVIDER:NAME, at column 3"),
]


@pytest.mark.parametrize(("probes", "error"), ITEMS, ids=[" ".join(words) for words, _ in ITEMS])
def test_the_caret_and_one_line_say_what_is_wrong(probes: list[str], error: str) -> None:
    assert one_error(run_usdt("trace", "-c", "true", *probes), code=2).startswith(error)


USAGE = [
    (["trase"], "No such command 'trase'. Did you mean 'trace'?"),
    (["trace", "--jsn", "a:b"], "No such option '--jsn'. Did you mean '--json'?"),
    (["trace", "-p", "1"], "Missing argument 'PROBE...'."),
    (["trace", "-p", "0", "a:b"], "Invalid value for '-p' / '--pid': 0 is not in the range x>=1."),
    (["trace", "-p", "1", "-a", "a:b"], "-p, -c and -a exclude one another"),
    (
        ["trace", "-p", "1", "--exit-code", "a:b"],
        "--exit-code is that of a command: add -c COMMAND",
    ),
    (
        ["trace", "-d", "5x", "a:b"],
        "Invalid value for '-d' / '--duration': '5x' is not a duration;",
    ),
    (["trace", "-c", "echo 'x", "a:b"], '-c: command "echo \'x": No closing quotation'),
    (["record", "-p", "1", "a:b"], "Missing option '-o' / '--output'."),
    (
        ["help", "lanuage"],
        "No such command or topic 'lanuage'. Did you mean 'language'? List topics with: usdt help",
    ),
]


@pytest.mark.parametrize(("words", "error"), USAGE, ids=[" ".join(words) for words, _ in USAGE])
def test_mistakes_of_usage_exit_with_2(words: list[str], error: str) -> None:
    assert one_error(run_usdt(*words), code=2).startswith(error)


# ---------------------------------------------------------------- help


@pytest.mark.parametrize("command", ["usdt", "kprobe"])
@pytest.mark.parametrize("topic", TOPICS)
def test_topics_of_help_are_printed_and_named(command: str, topic: str) -> None:
    words = [sys.executable, "-m", command, "help"]
    done = subprocess.run([*words, topic], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == TOPICS[topic]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    assert f"  help {topic}" in done.stdout


def test_the_topic_of_items_names_all_of_the_language() -> None:
    text = TOPICS["items"]
    assert not {name for name in BUILTINS if f"{name}" not in text.replace(",", " ").split()}
    assert not {name for name in FUNCTIONS if f"{name}(" not in text}
    examples = [line[2:32].strip() for line in text.splitlines() if line.startswith("  ")]
    assert len(examples) > 10
    for example in examples:
        for item in example.split() if example.startswith(("pid ", "container ")) else [example]:
            assert parse_items(item)
