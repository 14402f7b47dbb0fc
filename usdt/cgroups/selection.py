"""What ``--cgroup``, ``--unit``, ``--container`` and ``--pod`` select: the tops of subtrees."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from usdt.base.errors import TargetError
from usdt.base.frozen import frozen
from usdt.base.text import closest, printable
from usdt.cgroups.labels import labels_of
from usdt.cgroups.names import ContainerNames

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Literal

    from usdt.cgroups.hierarchy import Cgroup, Hierarchy
    from usdt.cgroups.labels import CgroupLabels

__all__ = ("CgroupChoice", "CgroupSelection")

_ID_PREFIX = re.compile(r"[0-9a-f]{4,64}")


@frozen
class CgroupChoice:
    """One option that selects cgroups.

    Attributes:
        option: its name.
        text: its value, as written.
    """

    option: Literal["cgroup", "unit", "container", "pod"]
    text: str

    @property
    def written(self) -> str:
        """The option as written, for messages."""
        return f"--{self.option} {printable(self.text) or repr(self.text)}"


class CgroupSelection:
    """The cgroups that some options select, now and as more are made.

    Args:
        choices: the options; a cgroup that any of them selects is selected.
        hierarchy: the cgroups of this machine.
        names: names of containers and pods.
    """

    def __init__(
        self,
        choices: Sequence[CgroupChoice],
        hierarchy: Hierarchy,
        names: ContainerNames | None = None,
    ) -> None:
        self._choices = choices
        self._hierarchy = hierarchy
        self._names = names or ContainerNames()

    def first(self) -> list[Cgroup]:
        """Return the selected cgroups, each without those below it.

        Raises:
            TargetError: an option selects nothing, or its ID is that of several containers.
        """
        every = list(self._hierarchy.every)
        found = []
        for choice in self._choices:
            selected = self._select(choice, every)
            if not selected:
                raise TargetError(self._nothing(choice, every))
            if choice.option == "container":
                self._check_prefix(choice, selected)
            found += selected
        return _tops(found)

    def again(self) -> list[Cgroup]:
        """Return the cgroups that are selected by now; none is no error."""
        every = list(self._hierarchy.every)
        return _tops(one for choice in self._choices for one in self._select(choice, every))

    def _select(self, choice: CgroupChoice, every: Sequence[Cgroup]) -> list[Cgroup]:
        if choice.option == "cgroup":
            text = choice.text
            mount = self._hierarchy.mount
            if text == mount or text.startswith(mount + "/"):
                text = text[len(mount) :]
            found = self._hierarchy.find(text)
            return [found] if found else []
        return _tops(one for one in every if self._fits(choice, one))

    def _fits(self, choice: CgroupChoice, one: Cgroup) -> bool:
        text = choice.text
        if choice.option == "unit":
            own = one.path.rpartition("/")[2].removeprefix("_")  # as systemd escapes some names
            return own in (text, f"{text}.service")
        labels = labels_of(one.path)
        if choice.option == "pod":
            pod = self._names.pod(labels)
            return bool(pod) and text in (pod, pod.rpartition("/")[2], labels.pod_uid)
        if not labels.container_id and not labels.container_name:
            return False
        return self._names.container(labels) == text or _is_prefix(text, labels)

    def _check_prefix(self, choice: CgroupChoice, selected: Sequence[Cgroup]) -> None:
        # Several containers may have one name, but not one ID.
        found = {
            labels.container_id
            for labels in (labels_of(one.path) for one in selected)
            if self._names.container(labels) != choice.text
        }
        if len(found) > 1:
            some = ", ".join(one[:12] for one in sorted(found)[:4])
            raise TargetError(
                f"{choice.written}: {len(found)} containers have an ID that begins so ({some}): "
                "give more digits"
            )

    def _nothing(self, choice: CgroupChoice, every: Sequence[Cgroup]) -> str:
        known = sorted({name for one in every for name in self._known(choice, one)})
        near = closest(choice.text, known)
        if near:
            hint = f"did you mean {printable(near)}?"
        elif known and choice.option != "cgroup":
            more = ", …" if len(known) > 8 else ""
            hint = f"there are {', '.join(map(printable, known[:8]))}{more}"
        else:
            hint = f"looked below {self._hierarchy.mount}, where cgroups of version 2 are mounted"
            if self._hierarchy.hybrid:
                hint += "; a runtime that uses only those of version 1 is not seen by programs"
        return f"{choice.written}: no such {choice.option}; {hint}"

    def _known(self, choice: CgroupChoice, one: Cgroup) -> Iterable[str]:
        if choice.option == "cgroup":
            return (one.path,)
        labels = labels_of(one.path)
        if choice.option == "unit":
            return (labels.unit,) if labels.unit else ()
        name = self._names.container if choice.option == "container" else self._names.pod
        found = name(labels)
        return (found,) if found else ()


def _is_prefix(text: str, labels: CgroupLabels) -> bool:
    return bool(_ID_PREFIX.fullmatch(text)) and labels.container_id.startswith(text)


def _tops(cgroups: Iterable[Cgroup]) -> list[Cgroup]:
    # Without those below another one, and each once.
    found: list[Cgroup] = []
    paths: set[str] = set()
    for one in sorted(cgroups, key=lambda one: one.depth):
        parts = one.path.split("/")
        above = {"/".join(parts[:end]) or "/" for end in range(1, len(parts) + 1)}
        if not paths & above:
            paths.add(one.path)
            found.append(one)
    return found
