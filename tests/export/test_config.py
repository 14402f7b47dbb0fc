"""The configuration of ``usdt export``: every mistake is one line that says what to write."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tracing_tools import run_usdt

from usdt.base.errors import TracingError
from usdt.export.config import METRIC_KEYS, load_config

GOOD = {
    "name": '"a"',
    "help": '"h"',
    "type": '"counter"',
    "probe": '"/bin/x:p:n"',
}


def text(**changes: str | None) -> str:
    """A metric's table with other keys."""
    keys = {key: value for key, value in (GOOD | changes).items() if value is not None}
    return "\n".join(["[[metric]]", *(f"{key} = {value}" for key, value in keys.items())])


def histogram(**changes: str) -> str:
    """A histogram's table with other keys."""
    return text(type='"histogram"', probe='"/bin/x:p:n(arg0)"', **changes)


def load(folder: Path, content: str) -> object:
    """Read a configuration."""
    (folder / "c.toml").write_text(content)
    return load_config(str(folder / "c.toml"))


OTLP = 'otlp.endpoint = "http://127.0.0.1:1"\n'
SPAN = '\n[[span]]\nname = "s"\nprobe = "uprobe:/bin/x:f"\n'
MISTAKES = {
    "no metric": ("", "metric: expected metrics; write [[metric]]"),
    "not TOML": ("[[metric", "not TOML: "),
    "an unknown key": (text(probs='"x"'), "[[metric]] a: probs: no such key; did you mean probe"),
    "an unknown key at the top": (
        "lisen = 1\n" + text(),
        "lisen: no such key; did you mean listen?",
    ),
    "no name": (text(name=None), '[[metric]] 1: name: missing: expected text; write name = "'),
    "a name with a space": (text(name='"a b"'), "a b: not a name"),
    "a name of the exporter": (text(name='"usdt_up"'), "it is one of the exporter's own"),
    "a name of its process": (text(name='"process_cpu_seconds_total"'), "of the exporter's own"),
    "a type that is none": (text(type='"gauge"'), "type: expected counter or histogram, found"),
    "no probe": (text(probe=None), "expected probe or probes; write probe ="),
    "a probe that cannot be parsed": (text(probe='"p:n(("'), "[[metric]] a: probe: "),
    "no target": (text(probe='"p:n"'), "program: whom to trace is missing; write program ="),
    "two targets": (text(pid="1", program='"x"'), "program: pid is given as well"),
    "a histogram without a value": (text(type='"histogram"'), "expected the value to aggregate"),
    "a duration as counter": (text(end='"/bin/x:p:m"'), "end: a duration is a histogram"),
    "a duration without unit": (
        text(type='"histogram"', end='"/bin/x:p:m"'),
        'name: has the unit seconds; write name = "a_seconds"',
    ),
    "a key without an end": (text(key='"tid"'), "key: pairs a start with its end"),
    "a label that is none": (text(by='{ "a-b" = "pid" }'), "by: a-b: not the name of a label"),
    "a label le": (text(by='{ le = "pid" }'), "by: le: not the name of a label"),
    "a comparison as label": (text(by='{ x = "pid > 1" }'), "by: x: "),
    "a stack as label": (text(by='{ x = "ustack" }'), "by: a stack or a symbol is no label"),
    "one expression twice": (text(by='{ x = "pid", y = "pid" }'), "pid is used twice"),
    "two expressions": (text(by='{ x = "pid, tid" }'), "by: x: expected one expression"),
    "series that are no number": (text(max_series='"9"'), "max_series: expected an integer from 1"),
    "true as a number": (text(max_series="true"), "max_series: expected an integer"),
    "the same name": (text() + "\n" + text(), "[[metric]] a: name: used twice"),
    "a range backwards": (
        histogram(range="[5, 1]"),
        "range: expected two integers, low and high",
    ),
    "bounds that descend": (
        histogram(buckets="[5, 1]"),
        "buckets: 1 after 5: expected ascending bounds",
    ),
    "bounds with nothing between": (
        histogram(buckets="[1, 1.5]"),
        "buckets: no value is above 1 and up to 1.5: leave one of them out",
    ),
    "bounds that are text": (
        histogram(buckets='["1"]'),
        "buckets: expected numbers; write buckets = ",
    ),
    "no bounds": (
        histogram(buckets="[]"),
        "buckets: 0 bounds; expected 1 to 200",
    ),
    "too fine powers": (
        histogram(buckets='"log2:16"'),
        "buckets: 'log2:16': not buckets; write buckets = ",
    ),
    "spans without a collector": (
        text() + SPAN,
        "span: spans are sent to a collector; write [otlp]",
    ),
    "a span without an end": (OTLP + SPAN.replace("uprobe:", ""), "[[span]] s: end: the probe has"),
    "a span with a type": (OTLP + SPAN + 'type = "x"', "[[span]] s: type: no such key"),
    "a collector without a URL": ('otlp.endpoint = "x"\n' + text(), "otlp: endpoint: x: not a URL"),
    "a port that is none": ('listen = "x:99999"\n' + text(), "listen: x:99999: expected HOST:PORT"),
}


@pytest.mark.parametrize(("content", "expected"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_one_line_that_says_what_to_write(
    content: str, expected: str, tmp_path: Path
) -> None:
    with pytest.raises(TracingError) as caught:
        load(tmp_path, content)
    message = str(caught.value)
    assert expected in message
    assert message.startswith(str(tmp_path / "c.toml"))
    assert "\n" not in message


def test_the_unit_of_values_is_no_unit_of_systemd(tmp_path: Path) -> None:
    changes = {
        "name": '"a_pages"',
        "probe": '"p:n(arg0)"',
        "type": '"histogram"',
        "unit": '"pages"',
    }
    (tmp_path / "c.toml").write_text(text(**changes, systemd_unit='"web.service"'))
    made = load_config(str(tmp_path / "c.toml"))
    (metric,) = made.metrics
    assert metric.unit == "pages"
    assert [(one.option, one.text) for one in metric.targets.cgroups] == [("unit", "web.service")]


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(TracingError, match="No such file"):
        load_config(str(tmp_path / "none.toml"))


def test_the_examples_of_the_documentation(tmp_path: Path) -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "export.md"
    examples = re.findall(r"```toml\n(.*?)```", page.read_text(), re.DOTALL)
    assert len(examples) == 2
    for example in examples:
        (tmp_path / "c.toml").write_text(example)
        done = run_usdt("export", tmp_path / "c.toml", "--check")
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.endswith("no mistakes found\n")


def test_the_keys_of_the_documentation() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "export.md").read_text()
    table = page.partition("The keys of `[[metric]]`")[2].partition("\n\nWithout")[0]
    rows = [row.split("|")[1] for row in table.splitlines() if row.startswith("| `")]
    assert sorted(re.findall(r"`(\w+)`", " ".join(rows))) == sorted(METRIC_KEYS)
