"""The events that somebody defined, as the files of tracefs list them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.tracefs.definitions import defined_names

if TYPE_CHECKING:
    from pathlib import Path


def test_events_of_every_kind_have_a_group(tmp_path: Path) -> None:
    (tmp_path / "kprobe_events").write_text("p:kprobes/opened do_sys_openat2 dfd=$arg1\n")
    (tmp_path / "dynamic_events").write_text(
        "p:kprobes/opened do_sys_openat2 dfd=$arg1\n"
        "f:fprobes/back do_sys_openat2%return\n"
        "s:synthetic/waited\tpid_t pid\n"
        "u:request u32 number; u64 square\n"
        "u:bare\n"
    )
    assert defined_names(tmp_path) == {
        "kprobes/opened": "kprobe_events",
        "fprobes/back": "dynamic_events",
        "synthetic/waited": "dynamic_events",
        "user_events/request": "dynamic_events",
        "user_events/bare": "dynamic_events",
    }
