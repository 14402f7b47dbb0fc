"""How bash, zsh and fish ask for completions.

The ways of zsh and fish are click's. Its script for bash splits words at the colons of probes.
Where nothing else is offered, the shell completes paths.
"""

from __future__ import annotations

import os

from click.shell_completion import (
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
    split_arg_string,
)

__all__ = ("SHELLS", "register")

# The line is split by the command, not by bash, for which a colon ends a word: what stands before
# the last colon of the word is cut from the answers again. Answers are quoted unless a quote is
# open.
_BASH = r"""%(complete_func)s() {
    local IFS=$'\t' line=${COMP_LINE:0:COMP_POINT} kind value start
    local word=${line##*[[:space:]]}
    COMPREPLY=()
    while read -r kind value; do
        case $kind in
        dir) compopt -o dirnames ;;
        file) compopt -o default ;;
        plain)
            if [[ $word != *[\'\"]* ]]; then
                printf -v value %%q "$value"
                start=${word%%"${word##*[:=]}"}
                [[ $COMP_WORDBREAKS == *:* ]] && value=${value#"$start"}
            fi
            COMPREPLY+=("$value")
            ;;
        esac
    done < <(COMP_LINE=$line %(complete_var)s=bash_complete "$1" 2>/dev/null)
}
complete -F %(complete_func)s %(prog_name)s
"""
_END = "\0"  # of a line; no command line has it


class _OrPaths(ShellComplete):
    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem[str]]:
        found = super().get_completions(args, incomplete)
        return found or [CompletionItem(incomplete, type="file")]


class _Bash(_OrPaths):
    name = "bash"
    source_template = _BASH

    def get_completion_args(self) -> tuple[list[str], str]:
        words = split_arg_string(os.environ["COMP_LINE"] + _END)
        return words[1:-1], words[-1].removesuffix(_END)

    def format_completion(self, item: CompletionItem[str]) -> str:
        return f"{item.type}\t{item.value}"


class _Zsh(_OrPaths, ZshComplete):
    # As an installed file, click's script offers nothing when it is asked for the second time: then
    # it is a function, which is no longer being loaded.
    source_template = ZshComplete.source_template.replace(
        "== loadautofunc", "== (loadautofunc|shfunc)"
    )


class _Fish(_OrPaths, FishComplete):
    pass


def register() -> None:
    """Have click complete in the ways above."""
    for one in SHELLS.values():
        add_completion_class(one)


#: The name of each shell, and how it completes.
SHELLS: dict[str, type[ShellComplete]] = {"bash": _Bash, "fish": _Fish, "zsh": _Zsh}
