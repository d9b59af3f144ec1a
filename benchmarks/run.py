"""Every benchmark of the speed of the engine, one after the other, and one table of all that is required.

    python benchmarks/run.py                     what `make bench` runs: at most 30 minutes
    python benchmarks/run.py --frameworks        JAX, Keras, TensorFlow and MXNet: `make bench-frameworks`
    python benchmarks/run.py --only step,start   some of them; their rows replace those of results/bench.json

Each script runs alone, too. For each number that is required it prints a line (`rows.required`). These lines
are collected here: what no script prints counts as missing. A script that takes longer than its share is
ended; when all together have taken 30 minutes, the rest is not started, and the table says so. Ends with exit
code 1 where something is short, missing or failed.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from tabulate import tabulate

from _pairs import keep
from rows import LINE, Row, collected, reasons

ROOT = Path(__file__).parent.parent
PYTHON = ROOT / ".venv/bin/python"
RINGLEADER = ROOT / ".venv/bin/ringleader"
MXNET = ROOT / ".venv-mxnet/bin/python"
MOST_SECONDS = 30 * 60.0
"""All scripts together."""
GRACE_SECONDS = 15.0
"""Seconds for a script to end after it was asked to."""


@dataclass(frozen=True, kw_only=True)
class Script:
    """One run of a script."""

    name: str
    words: tuple[str, ...]
    """File in this directory, and its arguments."""
    seconds: float
    """It is ended after this long: about twice what it takes on two idle cores."""
    lab: str = ""
    """Lab that it runs in, a key of `LABS`."""
    python: Path = PYTHON


LABS = {
    "bench": ("--hosts", "4", "--slots", "2", "--bandwidth", "8gbit", "--ssh-port", "34"),
    "slow": ("--hosts", "4", "--slots", "2", "--bandwidth", "1gbit", "--ssh-port", "36"),
}
ENGINE = (
    Script(name="start", words=("start.py",), seconds=120),
    Script(name="oversubscribed", words=("oversubscribed.py",), seconds=120),
    Script(name="allreduce", words=("allreduce.py", "--pin"), seconds=240),
    Script(name="new results", words=("new_results.py", "--pin"), seconds=240),
    Script(name="step", words=("step.py", "--pin"), seconds=240),
    Script(name="sharded step", words=("sharded_step.py", "--pin"), seconds=300),
    Script(name="sharded state", words=("sharded_step.py", "--states"), seconds=120),
    Script(
        name="start in a lab", words=("start.py", "--lab", "bench", "--pairs", "8"), seconds=180, lab="bench"
    ),
    Script(
        name="hosts 8 Gbit/s",
        words=("hosts.py", "--lab", "bench", "--rate", "8 Gbit/s"),
        seconds=240,
        lab="bench",
    ),
    Script(
        name="hosts 1 Gbit/s",
        words=("hosts.py", "--lab", "slow", "--rate", "1 Gbit/s"),
        seconds=600,
        lab="slow",
    ),
    Script(name="resnet", words=("resnet.py", "--lab", "slow"), seconds=240, lab="slow"),
)
FRAMEWORKS = (
    Script(name="jax", words=("jax_step.py", "--pin"), seconds=300),
    Script(name="keras", words=("keras_step.py", "--pin"), seconds=300),
    Script(name="mxnet", words=("mxnet_step.py", "--pin"), seconds=300, python=MXNET),
    Script(name="tensorflow allreduce", words=("framework_allreduce.py", "tensorflow", "--pin"), seconds=300),
    Script(name="jax allreduce", words=("framework_allreduce.py", "jax", "--pin"), seconds=300),
    Script(name="tensorflow keras", words=("tensorflow_keras_step.py", "--pin"), seconds=600),
    Script(name="tf_cnn_benchmarks", words=("tf_cnn_benchmarks.py",), seconds=1200),
)


@dataclass(frozen=True, kw_only=True)
class Done:
    """How a script ended."""

    script: str
    seconds: float
    trouble: str = ""
    """Why it has no result, or not all; empty where it ended well."""
    load: float = 0.0
    """How many processes were ready to run when it began: on an idle machine less than 1."""
    lines: tuple[str, ...] = ()
    """What it printed."""


def obstacle(script: Script) -> str:
    """Return why a script cannot run here; empty where it can."""
    if not (Path(__file__).parent / script.words[0]).is_file():
        return "there is no such script"
    if not script.python.exists():
        return "needs its environment: make mxnet"
    if script.lab and os.geteuid() != 0:
        return "needs root for its lab"
    if script.name == "tf_cnn_benchmarks" and not os.environ.get("TF_CNN_BENCHMARKS"):
        return "needs TF_CNN_BENCHMARKS, the directory of its checkout"
    return ""


def run(script: Script, seconds: float) -> Done:
    """Run a script for at most ``seconds``, showing what it prints."""
    begin, load = time.monotonic(), os.getloadavg()[0]
    process = subprocess.Popen(
        [str(script.python), str(Path(__file__).parent / script.words[0]), *script.words[1:]],
        cwd=ROOT, env=os.environ | {"PYTHONUNBUFFERED": "1"}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    late = threading.Event()

    def end() -> None:
        late.set()
        with_children(process, signal.SIGTERM)
        threading.Timer(GRACE_SECONDS, with_children, (process, signal.SIGKILL)).start()

    timer = threading.Timer(seconds, end)
    timer.start()
    lines = []
    assert process.stdout is not None
    try:
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line.rstrip("\n"))
        code = process.wait()
    finally:  # also where the user has enough: it is in its own session
        timer.cancel()
        with_children(process, signal.SIGTERM)
    trouble = f"ended after {seconds:.0f} s" if late.is_set() else f"exit code {code}" if code else ""
    return Done(
        script=script.name, seconds=time.monotonic() - begin, trouble=trouble, load=load, lines=tuple(lines)
    )  # fmt: skip


def with_children(process: subprocess.Popen[str], number: signal.Signals) -> None:
    """Send a signal to a script and to what it started, unless it has ended."""
    if process.poll() is None:
        os.killpg(process.pid, number)


@contextmanager
def lab(name: str) -> Iterator[str]:
    """Have a lab; yield why there is none, or nothing."""
    up = subprocess.run(
        [str(RINGLEADER), "lab", "up", "--lab-name", name, *LABS[name], "--replace"],
        stdout=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    try:
        yield f"its lab did not come up: exit code {up.returncode}" if up.returncode else ""
    finally:
        subprocess.run(
            [str(RINGLEADER), "lab", "down", "--lab-name", name], stdout=subprocess.DEVNULL, check=False
        )


def run_all(scripts: Sequence[Script], most: float) -> list[Done]:
    """Run them in turn; those of one lab follow each other."""
    begin, found = time.monotonic(), []

    def one(script: Script, trouble: str) -> None:
        left = most - (time.monotonic() - begin)
        trouble = trouble or ("" if left > 1 else f"not started: {most / 60:.0f} minutes are over")
        print(f"\n== {script.name}: {' '.join(script.words)}", flush=True)
        done = Done(script=script.name, seconds=0.0, trouble=trouble)
        found.append(done if trouble else run(script, min(script.seconds, left)))
        print(f"   {found[-1].seconds:.0f} s {found[-1].trouble}".rstrip(), flush=True)

    runnable = [script for script in scripts if not obstacle(script)]
    for script in scripts:
        if script not in runnable or not script.lab:
            one(script, obstacle(script))
    for name in LABS:
        inside = [script for script in runnable if script.lab == name]
        if inside and time.monotonic() - begin < most:
            with lab(name) as trouble:
                for script in inside:
                    one(script, trouble)
        else:
            for script in inside:
                one(script, "")
    return found


def summary(rows: Sequence[Row], done: Sequence[Done]) -> str:
    """Return the table of all rows, and what else is to be reported."""
    why = reasons()
    table = tabulate([row.cells() for row in rows], headers=Row.HEADERS, disable_numparse=True)
    told = [f"SHORT {row.case}: {why[row.case]}" for row in rows if row.short and row.case in why]
    told += [f"{one.script}: {one.trouble}" for one in done if one.trouble]
    return "\n".join(
        [
            table,
            "",
            *told,
            f"{sum(one.seconds for one in done) / 60:.1f} minutes",
            "into README.md: python benchmarks/table.py",
        ]
    )


def store(name: str, done: Sequence[Done], *, anew: bool) -> None:
    """Keep what scripts said about rows; unless ``anew`` with what the others said before."""
    file = Path(__file__).parent / f"results/{name}.json"
    before = {} if anew or not file.is_file() else json.loads(file.read_text())["scripts"]
    now = {
        one.script: {
            "seconds": round(one.seconds, 1),
            "load before": round(one.load, 2),
            "trouble": one.trouble,
            "lines": [text for text in one.lines if LINE.match(text)],
        }
        for one in done
    }
    scripts = before | now
    printed = {script: about["lines"] for script, about in scripts.items()}
    rows = collected(printed, whole=name == "bench")
    keep(name, {"scripts": scripts, "rows": [asdict(row) for row in rows]})


def main() -> None:
    """Run, print, keep."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--frameworks", action="store_true", help="JAX, Keras, TensorFlow and MXNet instead")
    parser.add_argument("--only", default="", help="names of scripts, separated by commas")
    args = parser.parse_args()
    scripts = FRAMEWORKS if args.frameworks else ENGINE
    names = [name.strip() for name in args.only.split(",") if name.strip()]
    if unknown := set(names) - {script.name for script in scripts}:
        parser.error(f"--only: {', '.join(sorted(unknown))}: not among {', '.join(s.name for s in scripts)}")
    scripts = tuple(script for script in scripts if not names or script.name in names)
    subprocess.run([str(PYTHON), "-m", "compileall", "-q", str(ROOT / "src/ringleader")], check=False)
    # What a framework takes to start is much, and nothing of the engine's table is among it.
    done = run_all(scripts, 2 * MOST_SECONDS if args.frameworks else MOST_SECONDS)
    rows = collected({one.script: one.lines for one in done}, whole=not args.frameworks and not names)
    print(f"\n{summary(rows, done)}")
    store("bench_frameworks" if args.frameworks else "bench", done, anew=not names)
    sys.exit(any(row.short for row in rows) or any(one.trouble for one in done))


if __name__ == "__main__":
    main()
