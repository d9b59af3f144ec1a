"""``python -m ringleader.alias``: run a script, or a module, that imports ``horovod``."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Sequence

from ringleader.alias import directory, install

USAGE = """usage: python -m ringleader.alias SCRIPT [ARGUMENT...]
       python -m ringleader.alias -m MODULE [ARGUMENT...]
       python -m ringleader.alias --path

Run a Python script or module in which 'horovod' stands for 'ringleader', under any launcher:

  mpirun -np 2 python -m ringleader.alias train.py --epochs 1

--path prints a directory instead; in front of PYTHONPATH it does the same for every Python started there.
"""


def search_path(own: str, rest: str) -> str:
    """Return PYTHONPATH with our directory in front, once."""
    return os.pathsep.join([own, *(part for part in rest.split(os.pathsep) if part and part != own)])


def run(name: str, arguments: Sequence[str], *, is_module: bool) -> None:
    """Run a script, or a module, as ``__main__``; its end is ours."""
    install()
    # For the processes that it starts; those of multiprocessing are given our sys.path.
    os.environ["PYTHONPATH"] = search_path(directory(), os.environ.get("PYTHONPATH", ""))
    sys.path.insert(0 if sys.flags.safe_path else 1, directory())
    sys.argv[:] = [name, *arguments]
    if is_module:
        runpy.run_module(name, run_name="__main__", alter_sys=True)
        return
    if not sys.flags.safe_path:
        # As where Python is given the script itself: its neighbors can be imported.
        sys.path[0] = os.path.dirname(os.path.realpath(name))  # noqa: PTH120
    runpy.run_path(name, run_name="__main__")


def main(words: Sequence[str]) -> int:
    """Do what the words ask for; return the exit code."""
    if list(words) == ["--path"]:
        sys.stdout.write(f"{directory()}\n")
        return 0
    if words and words[0] in ("-h", "--help"):
        sys.stdout.write(USAGE)
        return 0
    is_module = words[:1] == ["-m"]
    target = words[1:] if is_module else words
    if not target or (not is_module and target[0].startswith("-")):
        sys.stderr.write(USAGE)
        return 2
    if not is_module and not os.path.exists(target[0]):  # noqa: PTH110
        sys.stderr.write(f"ringleader: there is no script {target[0]}\n")
        return 2
    run(target[0], target[1:], is_module=is_module)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
