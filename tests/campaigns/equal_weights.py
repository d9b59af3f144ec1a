"""Trains 200 steps with each framework and backend, and asks every rank for the same weights; prints a table.

    python tests/campaigns/equal_weights.py [--only keras] [--ranks 1 2 3 4] [--no-lab]

The programs of tests/frameworks compare the weights of all ranks, and end with an error where they differ.
The grid is every framework on 1–4 ranks of this machine, then on a lab of two hosts with two slots each,
which needs root. The exit code is 1 where one did not hold.
"""

import argparse
import contextlib
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from tabulate import tabulate

sys.path.insert(0, str(Path(__file__).parent))

from campaign import a_lab

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "tests" / "frameworks" / "programs"
MXNET = ROOT / ".venv-mxnet" / "bin" / "python"
RINGLEADER = (sys.executable, "-m", "ringleader")
SECONDS = 300


@dataclass(frozen=True, kw_only=True)
class Case:
    """One way to train."""

    name: str
    words: tuple[str, ...]
    """The program and its arguments."""
    python: Path = Path(sys.executable)
    environ: dict[str, str] = field(default_factory=dict)


CASES = (
    Case(name="TensorFlow eager", words=("tensorflow_training.py", "eager")),
    Case(name="TensorFlow function", words=("tensorflow_training.py", "function")),
    Case(name="TensorFlow 1 sessions", words=("tensorflow_session_training.py", "v1")),
    Case(name="TensorFlow 2 sessions", words=("tensorflow_session_training.py", "v2")),
    Case(name="Keras 2", words=("keras_training.py", "200"), environ={"TF_USE_LEGACY_KERAS": "1"}),
    Case(
        name="Keras 3 tensorflow", words=("keras_training.py", "200"), environ={"KERAS_BACKEND": "tensorflow"}
    ),
    Case(name="Keras 3 torch", words=("keras_training.py", "200"), environ={"KERAS_BACKEND": "torch"}),
    Case(name="Keras 3 jax", words=("keras_training.py", "200"), environ={"KERAS_BACKEND": "jax"}),
    Case(name="PyTorch sharded", words=("sharded_training.py", "200")),
    Case(name="JAX optax", words=("jax_training.py", "200")),
    Case(name="MXNet Gluon", words=("mxnet_training.py", "gluon"), python=MXNET),
    Case(name="MXNet Module", words=("mxnet_training.py", "module"), python=MXNET),
)


def main() -> int:
    """Run the grid that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", default="", help="cases whose name has this word")
    parser.add_argument("--ranks", type=int, nargs="*", default=[1, 2, 3, 4])
    parser.add_argument("--no-lab", action="store_true")
    parser.add_argument("--ssh-port", default="36", help="the lab's, with others on the machine")
    words = parser.parse_args()
    cases = [case for case in CASES if words.only.lower() in case.name.lower() and case.python.exists()]
    places = {f"{ranks}": ("-n", f"{ranks}") for ranks in words.ranks}
    name = f"w{os.getpid()}"[:8]
    with contextlib.nullcontext() if words.no_lab else a_lab(2, name, words.ssh_port):
        if not words.no_lab:
            places["lab 2x2"] = ("-n", "4", "--lab", "--lab-name", name)
        rows = [[case.name, *(trained(case, place) for place in places.values())] for case in cases]
    print(tabulate(rows, headers=("200 steps", *places)))
    failed = sum(not str(cell).startswith("equal") for row in rows for cell in row[1:])
    print(f"{failed} of {len(rows) * len(places)} did not hold")
    return int(failed > 0)


def trained(case: Case, place: tuple[str, ...]) -> str:
    """Run one case at one place; return what came of it, and its seconds."""
    program = str(PROGRAMS / case.words[0])
    command = (*RINGLEADER, "run", "--oversubscribe", *place, "--timeout", str(SECONDS), "--")
    environ = {"TF_CPP_MIN_LOG_LEVEL": "2", "OMP_NUM_THREADS": "1"} | case.environ
    given = tuple(f"{name}={value}" for name, value in environ.items())
    began = time.monotonic()
    done = subprocess.run(
        (*command, "env", *given, str(case.python), program, *case.words[1:]),
        capture_output=True,
        text=True,
        timeout=SECONDS + 60,
        check=False,
    )
    seconds = time.monotonic() - began
    ranks = int(place[1])
    said = done.stdout.count("rank done")
    if done.returncode == 0 and said == ranks:
        print(f"{case.name}, {' '.join(place)}: equal, {seconds:.0f} s", file=sys.stderr, flush=True)
        return f"equal, {seconds:.0f} s"
    print(f"{case.name}, {' '.join(place)}:\n{done.stdout[-3000:]}{done.stderr[-3000:]}", file=sys.stderr)
    return f"FAILED ({done.returncode}), {said} of {ranks} ranks"


if __name__ == "__main__":
    sys.exit(main())
