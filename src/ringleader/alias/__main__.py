"""``python -m ringleader.alias``: run a script, or a module, that imports ``horovod``."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from ringleader.alias import directory, install

USAGE = """usage: python -m ringleader.alias SCRIPT [ARGUMENT...]
       python -m ringleader.alias -m MODULE [ARGUMENT...]
       python -m ringleader.alias --path

Run a Python script or module in which 'horovod' stands for 'ringleader', under any launcher:

  mpirun -np 2 python -m ringleader.alias train.py --epochs 1

--path prints a directory instead; in front of PYTHONPATH it does the same for every Python started there.
"""


@dataclass(frozen=True, kw_only=True)
class Target:
    """What is run."""

    name: str
    """Path of a script, or name of a module."""
    is_module: bool
    arguments: tuple[str, ...]
    """The target's own words."""


def read(words: Sequence[str]) -> Target | None:
    """Return what the words ask to run; None where they ask for nothing that can be run."""
    if not words:
        return None
    if words[0] == "-m":
        return Target(name=words[1], is_module=True, arguments=tuple(words[2:])) if len(words) > 1 else None
    if words[0].startswith("-"):
        return None
    return Target(name=words[0], is_module=False, arguments=tuple(words[1:]))


def search_path(own: str, rest: str) -> str:
    """Return PYTHONPATH with our directory in front, once."""
    return os.pathsep.join([own, *(part for part in rest.split(os.pathsep) if part and part != own)])


def run(target: Target) -> None:
    """Run the target as ``__main__``; its end is ours."""
    install()
    # For the processes that the target starts; those of multiprocessing are given our sys.path.
    os.environ["PYTHONPATH"] = search_path(directory(), os.environ.get("PYTHONPATH", ""))
    sys.path.insert(0 if sys.flags.safe_path else 1, directory())
    sys.argv[:] = [target.name, *target.arguments]
    if target.is_module:
        runpy.run_module(target.name, run_name="__main__", alter_sys=True)
        return
    if not sys.flags.safe_path:
        # As where Python is given the script itself: its neighbours can be imported.
        sys.path[0] = os.path.dirname(os.path.realpath(target.name))  # noqa: PTH120
    runpy.run_path(target.name, run_name="__main__")


def main(words: Sequence[str]) -> int:
    """Do what the words ask for; return the exit code."""
    if list(words) == ["--path"]:
        sys.stdout.write(f"{directory()}\n")
        return 0
    if words and words[0] in ("-h", "--help"):
        sys.stdout.write(USAGE)
        return 0
    target = read(words)
    if target is None:
        sys.stderr.write(USAGE)
        return 2
    if not target.is_module and not os.path.exists(target.name):  # noqa: PTH110
        sys.stderr.write(f"ringleader: there is no script {target.name}\n")
        return 2
    run(target)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
