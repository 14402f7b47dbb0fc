"""The ``usdt`` command without privilege: listings, checks, messages, exit codes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from fixtures import build, start
from tracing_tools import USDT, one_error, run_usdt

if TYPE_CHECKING:
    from pathlib import Path

COMMANDS = ("list", "info", "check", "trace", "features")

_SITE = {"address", "offset", "base", "semaphore", "semaphore_offset", "args", "operands"}
# Of each kind of operand: keys it always has, keys it may have.
_OPERANDS = {
    "constant": ({"kind", "size", "type"}, {"value", "symbol", "relocation", "error"}),
    "register": ({"kind", "size", "type", "register"}, {"error"}),
    "memory": (
        {"kind", "size", "type"},
        {"base", "index", "scale", "displacement", "symbol", "relocation", "segment", "error"},
    ),
    "unknown": ({"kind", "size", "type", "error"}, set()),
}


def listed(*words: object) -> list[dict[str, Any]]:
    """The objects of ``usdt list --json``."""
    done = run_usdt("list", "--json", *words)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def rows(*words: object) -> list[list[str]]:
    """The rows of the table of ``usdt list``, without its headings."""
    done = run_usdt("list", *words)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("  ")]
    return [re.split(r"  +", line.strip()) for line in lines if "PROBE  " not in line]


# ---------------------------------------------------------------- list


def test_a_table_for_eyes() -> None:
    path = build("default", "sema_each")
    text = run_usdt("list", path).stdout.splitlines()
    assert text[0] == f"{path}  (x86_64, 2 probes, 10 sites)"
    assert text[1].split() == ["PROBE", "SITES", "SEMAPHORE", "ARGUMENTS"]
    assert sorted(row[:3] for row in rows(path)) == [
        ["sema_each:guarded", "5", "one per site"],
        ["sema_each:value", "5", "one per site"],
    ]
    assert rows(path)[0][-1] == "(+4 variants)"


def test_json_has_the_keys_of_its_description() -> None:
    for program in ("args", "sema_shared", "regs", "tls", "globals"):
        path = build("default", program)
        for probe in listed(path):
            assert list(probe) == ["path", "provider", "name", "machine", "sites"]
            assert (probe["path"], probe["machine"]) == (str(path), "x86_64")
            for site in probe["sites"]:
                assert set(site) == _SITE
                assert len(site["operands"]) == len(site["args"].split())
                numbers = ("address", "offset", "base", "semaphore", "semaphore_offset")
                assert all(type(site[key]) is int for key in numbers)
                for operand in site["operands"]:
                    always, sometimes = _OPERANDS[operand["kind"]]
                    assert always <= set(operand) <= always | sometimes, operand
                    assert operand["type"] in ("signed", "unsigned", "float")


def test_json_of_a_probe_with_everything() -> None:
    (probe,) = listed(build("default", "regs"), "regs:unknown")
    (site,) = probe["sites"]
    known = {"kind": "register", "size": 4, "type": "signed", "register": "eax"}
    assert site["operands"][0] == known
    assert site["operands"][1]["kind"] == "unknown"
    assert "bogus" in site["operands"][1]["error"]
    (probe,) = listed(build("default", "regs"), "regs:constants")
    constants = [operand["value"] for operand in probe["sites"][0]["operands"]]
    assert constants == [2**64 - 1, -(2**63), 2**64 - 1, -1, 255, 2**32 - 1, 1, 2**63 - 1, 2**63]


def test_dead_sites_say_why() -> None:
    sites = {p["name"]: p["sites"] for p in listed(build("default", "oddnotes"), "oddnotes:*")}
    assert [site["offset"] for site in sites["dead"]] == [None]
    assert "address is 0" in sites["dead"][0]["dead"]
    assert "executable" in sites["in_data"][0]["dead"]
    assert [row[1] for row in rows(build("default", "oddnotes"), "*:dead")] == ["1 dead"]


@pytest.mark.parametrize(
    ("words", "names"),
    [
        pytest.param(["args:count3"], ["count3"], id="a name"),
        pytest.param(["args:count1?"], ["count10", "count11", "count12"], id="a question mark"),
        pytest.param(["*:dtrace*"], ["dtrace0", "dtrace3"], id="a star"),
        pytest.param(["args:dtrace0", "args:dtrace3"], ["dtrace0", "dtrace3"], id="two"),
        pytest.param(["args:dtrace*", "args:dtrace3"], ["dtrace0", "dtrace3"], id="one twice"),
    ],
)
def test_patterns_choose_probes(words: list[str], names: list[str]) -> None:
    path = build("default", "args")
    assert [probe["name"] for probe in listed(path, *words)] == names
    assert [p["name"] for p in listed(*(f"{path}:{word}" for word in words))] == names


def test_several_files_are_listed_one_after_the_other() -> None:
    paths = [build("default", "args"), build("m32", "ints")]
    found = listed(*paths)
    assert {probe["path"] for probe in found} == {str(path) for path in paths}
    assert {probe["machine"] for probe in found} == {"x86_64", "i386"}
    assert run_usdt("list", *paths).stdout.count("PROBE  ") == 2


def test_a_process_of_ones_own_can_be_listed() -> None:
    with start(build("default", "libpair"), "-w") as program:
        program.wait_ready()
        found = {(p["path"].rpartition("/")[2], p["name"]) for p in listed("-p", program.pid)}
    assert found >= {
        ("libpair", "both"),
        ("libpair", "program_only"),
        ("libpair.so", "both"),
        ("libpair.so", "library_only"),
    }


def test_strange_names_reach_no_terminal_unescaped() -> None:
    path = build("default", "oddnames")
    for words in (("list", path), ("info", path), ("check", path)):
        text = run_usdt(*words).stdout
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\x80-\x9f\udc80-\udcff]", text)
        assert r"oddnames:\x1b[31mred" in text or words[0] == "check"
    names = {f"{probe['provider']}:{probe['name']}" for probe in listed(path)}
    assert "oddnames:\033[31mred" in names
    assert "oddnames:not UTF-8 \udcff\udcfe" in names
    assert ":no_provider" in names
    assert run_usdt("list", "--json", path).stdout.isascii()


# ---------------------------------------------------------------- info, check, features


def test_info_says_where_each_argument_lives() -> None:
    text = run_usdt("info", f"{build('default', 'regs')}:regs:index").stdout
    assert "regs:index  in " in text
    assert "1 call site" in text
    assert re.search(
        r"arg1 +8@8\(%rbx,%rcx,8\) +unsigned, 8 bytes, in memory at rbx \+ rcx \* 8 \+ 8", text
    )
    text = run_usdt("info", build("default", "regs"), "regs:constants").stdout
    assert re.search(r"arg3 +-1@\$255 +signed, 1 byte, the constant -1\b", text)
    text = run_usdt("info", build("default", "sema_each"), "sema_each:value").stdout
    assert text.count("semaphore 0x") == 5


@pytest.mark.parametrize(
    ("program", "pattern", "problem"),
    [
        pytest.param("ints", "*:*", None, id="everything is readable"),
        pytest.param("tls", "tls:scalars", "thread-local", id="a thread-local variable"),
        pytest.param("tls", "tls:address", None, id="a probe beside it"),
        pytest.param("globals", "globals:twin_first", "ambiguous", id="a name that is there twice"),
        pytest.param("oddnotes", "oddnotes:dead", "address is 0", id="a dead site"),
        pytest.param("regs", "regs:xmm", "%xmm0", id="a register that is not saved"),
    ],
)
def test_check_exits_with_1_where_something_would_be_missing(
    program: str, pattern: str, problem: str | None
) -> None:
    path = build("default", program)
    done = run_usdt("check", path, pattern)
    assert done.returncode == (0 if problem is None else 1)
    record = json.loads(run_usdt("check", "--json", path, pattern).stdout.splitlines()[0])
    assert list(record) == ["path", "provider", "name", "ok", "problems"]
    assert record["ok"] is (problem is None)
    if problem is None:
        assert "all would attach and decode" in done.stdout
        assert record["problems"] == []
    else:
        assert problem in done.stdout
        assert problem in record["problems"][0]


def test_features_are_told() -> None:
    done = run_usdt("features", "--json")
    record = json.loads(done.stdout)
    keys = ["kernel", "machine", "missing_capabilities", "features", "attach"]
    assert list(record) == [*keys, "privileges", "settings"]
    assert record["privileges"]["uprobe_multi"]["needs"] == ["CAP_BPF", "CAP_PERFMON"]
    assert "CAP_BPF" in record["privileges"]["uprobe_events"]["needs"]
    assert record["kernel"] == os.uname().release
    assert set(record["features"].values()) <= {True, False, None}
    text = run_usdt("features").stdout
    assert os.uname().release in text
    assert "BPF ring buffer" in text
    if os.geteuid() == 0:
        assert record["missing_capabilities"] == []
        assert None not in record["features"].values()
    for name, value in record["settings"].items():
        assert f"{name}={value}" in text


# ---------------------------------------------------------------- help, version, usage


def test_help_names_every_command() -> None:
    text = run_usdt("--help").stdout
    assert all(re.search(rf"^  {name} +[A-Z]", text, re.MULTILINE) for name in COMMANDS)
    for name in COMMANDS:
        done = run_usdt(name, "--help")
        assert done.returncode == 0
        assert done.stdout.startswith(f"Usage: usdt {name} ")


# The modules of the toolkit that the list of commands needs
HELP_MODULES = {
    *("usdt", "usdt.base", "usdt.base.durations", "usdt.base.errors", "usdt.base.lazy_exports"),
    *("usdt.base.interrupts", "usdt.base.text", "usdt.base.version", "usdt.base.frozen"),
    *("usdt.base.terminal", "usdt.base.terminal.look", "usdt.base.terminal.progress"),
    *("usdt.base.terminal.click_import", "usdt.base.terminal.own_modules"),
    *("usdt.engine", "usdt.engine.cli"),
    *("usdt.engine.cli.click_group", "usdt.engine.cli.commands"),
}


@pytest.mark.parametrize("command", ["usdt", "kprobe"])
def test_help_is_cheap(command: str) -> None:
    code = (
        "import sys; before = set(sys.modules)\n"
        f"sys.argv = [{command!r}, '--help']\n"
        "import atexit\n"
        "atexit.register(lambda: print(*set(sys.modules) - before, file=sys.stderr))\n"
        f"from {command}.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"Usage: {command} ")
    loaded = set(done.stderr.split())
    own = {name for name in loaded if name.partition(".")[0] in ("usdt", "kprobe")}
    assert own == HELP_MODULES | {command, f"{command}.cli", f"{command}.cli.group"}
    roots = {name.partition(".")[0] for name in loaded - own}
    assert roots - {"click"} <= sys.stdlib_module_names
    assert not roots & {"asyncio", "ctypes", "json", "multiprocessing", "socket", "subprocess"}
    assert not roots & {"math", "select", "shutil", "signal"}


@pytest.mark.parametrize("command", ["usdt", "kprobe"])
def test_imports_collect_no_garbage(command: str) -> None:
    code = (
        f"import atexit, gc, sys; sys.argv = [{command!r}, '--help']\n"
        "runs = []\n"
        "atexit.register(lambda: print(runs, file=sys.stderr))\n"
        f"from {command}.cli import script\n"
        "gc.collect(); gc.callbacks.append(lambda phase, _: runs.append(phase)); script()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"


@pytest.mark.parametrize("command", ["list", "info"])
def test_a_named_file_takes_no_search_and_no_language(command: str) -> None:
    code = (
        f"import sys; sys.argv = ['usdt', {command!r}, {str(build('default', 'loop'))!r}]\n"
        "import atexit\n"
        "atexit.register(lambda: print(*sys.modules, file=sys.stderr))\n"
        "from usdt.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "loop:hit" in done.stdout
    loaded = set(done.stderr.split())
    assert "usdt.targets.search.target_files" in loaded
    unused = ("engine.cli.options", "engine.language", "procfs", "targets.search.searched_files")
    assert not loaded & {f"usdt.{name}" for name in (*unused, "engine.runtime", "probes.sites")}
    assert not loaded & {"signal", "unicodedata"}


def test_version() -> None:
    done = run_usdt("--version")
    first, *more = done.stdout.splitlines()
    assert re.fullmatch(r"usdt \d+\.\d+\.\d+( \(commit [0-9a-f]{12}(-dirty)?\))?", first)
    assert more[0].startswith("extras: ")


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(["trcae"], id="no such command"),
        pytest.param(["list", "--no-such-option"], id="no such option"),
        pytest.param(["list", "-p", "0"], id="process 0"),
        pytest.param(["list", "-p", "-1"], id="a negative process"),
        pytest.param(["list", "-p"], id="an option without its value"),
        pytest.param(["info"], id="info about nothing"),
        pytest.param(["trace"], id="trace of nothing"),
        pytest.param(["features", "word"], id="a word too many"),
    ],
)
def test_usage_errors_exit_with_2(words: list[str]) -> None:
    done = run_usdt(*words)
    one_error(done, code=2)
    assert done.stdout == ""


def test_a_misspelt_command_is_told_the_nearest() -> None:
    assert "'trace'" in one_error(run_usdt("trcae"), code=2)


@pytest.mark.parametrize("command", ["list", "info", "check"])
def test_what_is_not_there_is_one_line(command: str, tmp_path: Path) -> None:
    path = build("default", "args")
    assert "nearest is args:count3" in one_error(run_usdt(command, path, "args:cuont3"))
    assert str(tmp_path) in one_error(run_usdt(command, tmp_path, "args:count3"))
    missing = tmp_path / "missing"
    assert str(missing) in one_error(run_usdt(command, missing, "args:count3"))
    done = run_usdt(command, path, "args:count3(arg0")
    assert "column 12" in one_error(done, code=2)
    assert done.stderr.startswith("args:count3(arg0\n           ^\n")


def test_results_go_to_stdout_and_nothing_else_does() -> None:
    done = run_usdt("list", build("default", "args"))
    assert done.stderr == ""
    done = run_usdt("list", "--json", build("default", "oddnotes"))
    assert all(line.startswith("{") for line in done.stdout.splitlines())
    assert done.stderr.startswith("Warning: ")


@pytest.mark.parametrize("closed", ["0", "1", "2", "01", "12", "012"])
def test_closed_streams_do_no_harm(closed: str) -> None:
    script = '"$1" list "$2" args:count3 ' + " ".join(f"{number}>&-" for number in closed)
    done = subprocess.run(
        ["sh", "-c", script, "sh", USDT, build("default", "args")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert ("args:count3" in done.stdout) is ("1" not in closed)


def test_the_locale_does_not_matter() -> None:
    path = build("default", "oddnames")
    usual = run_usdt("list", "--json", path).stdout
    plain = {"PATH": os.environ["PATH"], "LC_ALL": "C", "PYTHONUTF8": "0"}
    for words in (["list", "--json", str(path)], ["list", str(path)], ["info", str(path)]):
        done = subprocess.run([USDT, *words], env=plain, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        if "--json" in words:
            assert done.stdout.decode() == usual
