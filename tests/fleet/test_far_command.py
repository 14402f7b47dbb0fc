"""The command that follows ``--``: what runs on each machine, and what is refused before."""

from __future__ import annotations

import shlex
import time

import click
import pytest

from usdt.base.errors import LanguageError
from usdt.cli.fleet.far_command import Answer, FarCommand, parsed


def far(text: str, *, as_json: bool = False) -> FarCommand:
    return parsed(shlex.split(text), 5.0, as_json=as_json)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("count -a x:y -d 3", "usdt count --json --all --duration 3 x:y"),
        ("usdt count -a x:y -d3", "usdt count --json --all --duration 3 x:y"),
        ("kprobe count vfs_read -d 9", "kprobe count --json --interval 5 --duration 9 vfs_read"),
        ("cou x:y z:* -i 1", "usdt count --json --interval 1 x:y z:*"),
        ("count --top=3 --json x:y -n 9", "usdt count --json --count 9 x:y"),
        ("count x:y -p 1 -p 2 -c 'a b' -vv --no-drop -n 1",
         "usdt count --json --count 1 -p 1 -p 2 -c 'a b' --verbose --verbose --no-drop x:y"
         .replace("-p", "--pid").replace("-c ", "--command ")),
        ("count x:y --folded -d 1", "usdt count --json --ustack --duration 1 x:y"),
        ("count x:y --folded --kstack -d 1", "usdt count --json --kstack --duration 1 x:y"),
        ("kprobe 'f(a, b)' -n 1", "kprobe trace --json --count 1 'f(a, b)'"),
        ("heatmap x:y x:z -i 2", "usdt heatmap --json --align --interval 2 x:y x:z"),
        ("report /tmp/a.usdt 'x:*'", "usdt report --json /tmp/a.usdt 'x:*'"),
        ("list /bin/a -p 1", "usdt list /bin/a -p 1"),
        ("kprobe event list", "kprobe event list"),
    ],
)  # fmt: skip
def test_what_each_machine_runs(text: str, words: str) -> None:
    found = [*far(text).words]
    options, expected = ([*map(str, found)], shlex.split(words))
    assert (options[:3], sorted(options)) == (expected[:3], sorted(expected))


def test_what_shows_results_is_for_the_sum() -> None:
    found = far("kprobe latency a b --by comm --top 3 --sort p99 --hist -d 2m --realtime")
    assert (found.top, found.sort, found.hist, found.duration) == (3, "p99", True, 120.0)
    assert found.realtime
    assert found.whole
    assert "--top" not in found.words
    assert "--hist" not in found.words


def test_a_moment_is_the_same_in_every_time_zone() -> None:
    at = int(time.time()) + 100
    found = far(f"count x:y --at @{at} -d 1")
    assert found.words[:5] == ("usdt", "count", "--json", "--at", f"@{at}.000000000")
    assert 90 < found.duration <= 102


def test_what_is_text_can_be_objects() -> None:
    assert far("list /bin/a").answer is Answer.TEXT
    assert far("list /bin/a", as_json=True).words == ("usdt", "list", "/bin/a", "--json")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no command; give one of trace, spans, report, count"),
        ("kprobe", "no command; give one of trace, spans, count"),
        ("conut x:y", "no command 'conut' for a fleet, perhaps 'count'"),
        ("record x:y", "cannot run record on a fleet: it would leave a file on each machine"),
        ("top", "cannot run top on a fleet: it draws a screen"),
        ("kprobe btf", "cannot run btf on a fleet: it prints megabytes"),
        ("kprobe event define 'p f'", "cannot run event define on a fleet: it changes the tracer"),
        ("export a.toml", "cannot run export on a fleet: it is a service"),
        ("merge a b", "cannot run merge on a fleet: it reads files"),
        ("fleet --nodes a", "cannot run fleet on a fleet"),
        ("count", "Missing parameter: probes"),
        ("count x:y --bogus", "No such option"),
        ("count x:y -n 0", "0 is not in the range"),
        ("count x:y -d soon", "'soon' is not a duration"),
        ("count x:y -o F", "--output would write on each machine; give it before --"),
        ("count x:y --flame a.svg", "--flame would write on each machine; save a stream"),
        ("trace x:y --folded", "--folded: count --ustack --folded adds up the stacks"),
        ("report r.usdt --csv", "--csv: a fleet shows events as text, or as JSON"),
        ("count x:y --at @1", "--at: @1 was"),
        ("count x:y --at=noon", "--at: 'noon' is no time"),
    ],
)
def test_what_is_refused_before_a_machine_is_asked(text: str, said: str) -> None:
    with pytest.raises(click.UsageError) as caught:
        far(text)
    assert said in str(caught.value.format_message()) or said in str(caught.value)


def test_a_probe_that_is_not_valid_is_refused() -> None:
    with pytest.raises(LanguageError, match="is not closed"):
        far("count 'x:y('")


def test_events_have_no_objects() -> None:
    with pytest.raises(click.UsageError, match="events has no --json"):
        far("events x:y", as_json=True)


def test_help_is_that_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(click.exceptions.Exit):
        far("kprobe count --help")
    assert "Usage: kprobe count" in capsys.readouterr().out
