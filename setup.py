"""The parts of the build that pyproject.toml cannot describe.

The commit goes into what is built, and so do man pages and completions, which the commands make.
The source distribution is the same bytes for the same sources.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

sys.path.insert(0, str(Path(__file__).parent))  # isolated builds do not look here

from tools.man_pages import write_man_pages
from tools.shell_completions import write_completions
from tools.source_archive import write_archive
from usdt.base.version import COMMIT_FILE, commit


class _BuildPy(build_py):
    def run(self) -> None:
        super().run()
        if not self.editable_mode:  # a checkout asks git whenever it is asked
            _write_commit(self.build_lib)
            made = Path(self.get_finalized_command("build").build_base, "share")
            shared = {"man/man1": write_man_pages(made / "man"), **write_completions(made)}
            self.distribution.data_files = [(f"share/{to}", paths) for to, paths in shared.items()]


class _Sdist(sdist):
    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, files)
        _write_commit(base_dir)

    def make_archive(
        self, base_name: str, kind: str, root_dir: Any = None, base_dir: Any = None, **more: Any
    ) -> str:
        if kind != "gztar":
            return super().make_archive(base_name, kind, root_dir, base_dir, **more)
        path = Path(f"{base_name}.tar.gz")
        write_archive(path, Path(root_dir or ".", base_dir))
        return str(path)


def _write_commit(folder: str) -> None:
    found = commit()
    if found:
        Path(folder, "usdt", COMMIT_FILE).write_text(f"{found}\n")


setup(cmdclass={"build_py": _BuildPy, "sdist": _Sdist})
