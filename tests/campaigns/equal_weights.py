"""Trains 200 steps with each framework and backend, and asks every rank for the same weights; prints a table.

    python tests/campaigns/equal_weights.py [--only keras] [--ranks 1 2 3 4] [--no-lab]

The programs of tests/frameworks compare the weights of all ranks, and end with an error where they differ.
The grid is every framework on 1–4 ranks of this machine, then on two hosts of a lab, which needs root.
"""

import argparse
import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

from tabulate import tabulate

sys.path.insert(0, str(Path(__file__).parent))

from campaign import a_lab

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "tests" / "frameworks" / "programs"
MXNET = ROOT / ".venv-mxnet" / "bin" / "python"
RINGLEADER = (sys.executable, "-m", "ringleader")
SECONDS = 300


CASES = {
    "TensorFlow eager": "tensorflow_training.py eager",
    "TensorFlow function": "tensorflow_training.py function",
    "TensorFlow 1 sessions": "tensorflow_session_training.py v1",
    "TensorFlow 2 sessions": "tensorflow_session_training.py v2",
    "Keras 2": "keras_training.py 200",
    "Keras 3 tensorflow": "keras_training.py 200",
    "Keras 3 torch": "keras_training.py 200",
    "Keras 3 jax": "keras_training.py 200",
    "PyTorch sharded": "sharded_training.py 200",
    "JAX optax": "jax_training.py 200",
    "MXNet Gluon": "mxnet_training.py gluon",
    "MXNet Module": "mxnet_training.py module",
}
"""What is trained → its program and arguments."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", default="", help="cases whose name has this word")
    parser.add_argument("--ranks", type=int, nargs="*", default=[1, 2, 3, 4])
    parser.add_argument("--no-lab", action="store_true")
    parser.add_argument("--ssh-port", default="36", help="the lab's, with others on the machine")
    words = parser.parse_args()
    cases = [case for case in CASES if words.only.lower() in case.lower()]
    cases = [case for case in cases if MXNET.exists() or "MXNet" not in case]
    places = {f"{ranks}": ("-n", f"{ranks}") for ranks in words.ranks}
    name = f"w{os.getpid()}"[:8]
    with contextlib.nullcontext() if words.no_lab else a_lab(2, name, words.ssh_port):
        if not words.no_lab:
            places["lab 2x2"] = ("-n", "4", "--lab", "--lab-name", name)
        rows = [[case, *(trained(case, place) for place in places.values())] for case in cases]
    print(tabulate(rows, headers=("200 steps", *places)))
    failed = sum(not str(cell).startswith("equal") for row in rows for cell in row[1:])
    print(f"{failed} of {len(rows) * len(places)} did not hold")
    return int(failed > 0)


def trained(case: str, place: tuple[str, ...]) -> str:
    """Run one case at one place; return what came of it, and its seconds."""
    program, *arguments = CASES[case].split()
    environ = ["TF_CPP_MIN_LOG_LEVEL=2", "OMP_NUM_THREADS=1"]
    environ += ["TF_USE_LEGACY_KERAS=1"] if case == "Keras 2" else []
    environ += [f"KERAS_BACKEND={case.split()[-1]}"] if case.startswith("Keras 3") else []
    python = str(MXNET) if "MXNet" in case else sys.executable
    command = (
        *RINGLEADER,
        "run",
        "--oversubscribe",
        *place,
        "--timeout",
        str(SECONDS),
        "--",
        "env",
        *environ,
    )
    words = (*command, python, str(PROGRAMS / program), *arguments)
    began = time.monotonic()
    done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS + 60, check=False)
    said, seconds = done.stdout.count("rank done"), time.monotonic() - began
    if done.returncode == 0 and said == int(place[1]):
        print(f"{case}, {' '.join(place)}: equal, {seconds:.0f} s", file=sys.stderr, flush=True)
        return f"equal, {seconds:.0f} s"
    print(f"{case}, {' '.join(place)}:\n{done.stdout[-3000:]}{done.stderr[-3000:]}", file=sys.stderr)
    return f"FAILED ({done.returncode}), {said} of {place[1]} ranks"


if __name__ == "__main__":
    sys.exit(main())
