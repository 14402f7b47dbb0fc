"""The version of this distribution, which pyproject.toml reads from here, and its commit."""

from __future__ import annotations

__all__ = ("COMMIT_FILE", "VERSION", "commit")

VERSION = "0.1.0"

COMMIT_FILE = "commit.txt"  #: in the package, where a build has written it (setup.py)


def commit() -> str | None:
    """Return the commit that this was built from, or that is checked out; None if neither is known.

    ``-dirty`` follows if files of a checkout have changed since.
    """
    # Imported here: every start of a command imports this module.
    import subprocess  # noqa: PLC0415
    from importlib.resources import files  # noqa: PLC0415
    from pathlib import Path  # noqa: PLC0415

    built = files("usdt") / COMMIT_FILE
    if built.is_file():
        return built.read_text().strip() or None
    checkout = Path(__file__).parents[2]
    if not (checkout / ".git").exists():
        return None
    command = ["git", "--no-optional-locks", "-C", str(checkout), "describe"]
    options = ["--always", "--dirty", "--abbrev=12", "--exclude=*"]  # the commit, never a tag
    try:
        done = subprocess.run(
            [*command, *options], capture_output=True, text=True, check=False, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None
