"""Breaks running jobs at random and looks how they end; prints a table and every exception.

    python tests/campaigns/faults.py [--trials 200] [--seed 1] [--where host] [--time-factor 1]

Every job must end in bounded time, with the documented exit code, name who was hit, and leave nothing. What
lacks one of these is an exception, and the exit code is 1. A lab (``--where lab``) needs root.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import faults_table as table
import faults_world as world
from faults_table import Row

from ringleader.lab import hosts as lab_hosts

LONG, SHORT, FINISHES = 60.0, 0.2, 5.0
"""Seconds that a job trains: one that is to be broken, one that is to be met at its end, one that goes on."""
GIVE_UP = 90.0


def main() -> int:
    """Carry out the trials that the command line asks for."""
    words = _words()
    chosen = table.drawn(tuple(words.where), words.trials, words.seed)
    chosen = [row for row in chosen if words.only in f"{row.fault} {row.target} {row.phase}"]
    results = list[dict[str, Any]]()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, world.unwind)
    with contextlib.suppress(KeyboardInterrupt), contextlib.ExitStack() as stack:
        lab = stack.enter_context(world.a_lab()) if any(row.where == "lab" for row in chosen) else None
        for number, row in enumerate(chosen):
            draw = random.Random(f"{words.seed} {number}")
            result = one(row, draw, lab if row.where == "lab" else None, words.mpi, words.time_factor)
            results.append({"number": number} | result)
            print(f"{number:4} {_line(result)}", file=sys.stderr, flush=True)
    for line in summary(results):
        print(line)
    exceptions = [result for result in results if result["faults"]]
    for result in exceptions:
        print(f"\n!! {result['number']}: {_line(result)}\n   {result['script']}: {result['argv']}")
        print("".join(f"   | {line}\n" for line in result["output"][-25:]), end="")
    print(f"\n{len(results)} of {len(chosen)} trials, {len(exceptions)} exceptions")
    if words.json_file:
        Path(words.json_file).write_text(json.dumps(results, indent=1))
    return 1 if exceptions or len(results) < len(chosen) else 0


def _words() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--where", nargs="+", choices=("host", "lab"), default=["host", "lab"])
    parser.add_argument("--mpi", default="embedded")
    parser.add_argument("--time-factor", type=float, default=1.0, help="so much longer may an end take")
    parser.add_argument("--only", default="", help="of the trials those with this in 'FAULT TARGET PHASE'")
    parser.add_argument("--json-file")
    return parser.parse_args()


def one(row: Row, draw: random.Random, lab: Any, mpi: str, time_factor: float = 1.0) -> dict[str, Any]:
    """Carry out one trial and judge it."""
    script = draw.choice(list(world.SCRIPTS))
    seconds = FINISHES if row.fault == table.STOP else SHORT if row.phase == "end" else LONG
    trial = world.Trial(mpi=mpi, script=script, seconds=seconds, lab=lab, words=())
    try:
        found = _hit(trial, row, draw)
        hit_at = time.monotonic()
        if found is not None and _goes_on(trial, row, hit_at + table.PROCESS_SECONDS):
            row, found, hit_at = replace(row, fault="term", target="launcher"), {}, time.monotonic()
            trial.launcher.terminate()
        ended, gone, left = _ended(trial, row, hit_at)
        result = _judged(trial, row, found, (ended, gone), left, time_factor)
        result |= {"script": script, "argv": " ".join(trial.argv), "output": list(trial.lines)}
        return result
    finally:
        trial.close()


def _goes_on(trial: world.Trial, row: Row, until: float) -> bool:
    """Tell whether a job that was hit while it started trains all the same, and is to be ended."""
    if row.phase != "start-up" or row.target not in table.MAY_GO_ON or row.fault not in ("term", "int"):
        return False
    while trial.launcher.poll() is None and time.monotonic() < until:
        time.sleep(0.02)
    return trial.launcher.poll() is None and trial.wait_for("training", 30.0)


def _hit(trial: world.Trial, row: Row, draw: random.Random) -> dict[str, str] | None:
    """Wait for the phase and strike; return who was hit, ``None`` where there was nobody any more."""
    if row.phase != "start-up" and not trial.wait_for(
        {"training": "training", "end": "ending"}[row.phase], 90.0
    ):
        return None
    if row.target in ("link", "host"):
        return _hit_host(trial, row, draw)
    until, found = time.monotonic() + 30.0, trial.candidates(row.target)
    while (
        not found and row.phase == "start-up" and time.monotonic() < until and trial.launcher.poll() is None
    ):
        time.sleep(0.01)
        found = trial.candidates(row.target)
    if not found:
        return None
    pid = draw.choice(found)
    name = trial.name(pid)
    if row.phase != "end":
        time.sleep(draw.uniform(0.0, 0.6))
    try:
        os.kill(pid, signal.SIGSTOP if row.fault == table.STOP else table.SIGNALS[row.fault])
        if row.fault == table.STOP:
            time.sleep(2.0)
            os.kill(pid, signal.SIGCONT)
    except ProcessLookupError:
        return None
    return name


def _hit_host(trial: world.Trial, row: Row, draw: random.Random) -> dict[str, str]:
    assert trial.lab is not None
    host = draw.choice(trial.lab.hosts)
    if row.phase == "start-up":
        until = time.monotonic() + 30.0
        while not trial.candidates("prted") and time.monotonic() < until:
            time.sleep(0.01)
    if row.phase != "end":
        time.sleep(draw.uniform(0.0, 0.6))
    (lab_hosts.cut if row.target == "link" else lab_hosts.kill)(trial.lab, host)
    return {"host": host.name, "rank": ""}


def _ended(trial: world.Trial, row: Row, hit_at: float) -> tuple[float, float, list[str]]:
    """Wait for the end; return the seconds to the launcher's and to everything's, and what is left."""
    until = hit_at + GIVE_UP
    while trial.launcher.poll() is None and time.monotonic() < until:
        time.sleep(0.02)
    ended = time.monotonic() - hit_at
    while (left := _left(trial, row)) and time.monotonic() < until:
        time.sleep(0.05)
    return ended, time.monotonic() - hit_at, left


def _left(trial: world.Trial, row: Row) -> list[str]:
    """Return what is left that should not be; see ``SWEPT``."""
    swept = table.SWEPT.get(row.target, "\0")
    left = [one for one in trial.left() if not one.startswith(swept)]
    if row.phase == "start-up" and row.target in (*table.REMOTE, "mpirun"):
        left = [one for one in left if not re.search(table.OWN_SESSION, one)]
    return [one for one in left if row.target != "link" or table.SSH_SESSION not in one]


def _judged(
    trial: world.Trial,
    row: Row,
    name: dict[str, str] | None,
    times: tuple[float, float],
    left: list[str],
    time_factor: float,
) -> dict[str, Any]:
    ended, gone = times
    expected = table.expected(row)
    outcome = trial.outcome()
    code = trial.launcher.poll()
    said = " ".join(line for line in trial.lines if not line.startswith("["))
    whose = f"{outcome.get('whose', '')}: {outcome.get('reason', '')}" if outcome.get("whose") else ""
    faults = []
    over = code == 0 and (row.phase == "end" or name is None)
    if not over:
        pattern = expected.whose.format(**{key: re.escape(text) for key, text in (name or {}).items()})
        if code not in expected.codes:
            faults.append(f"exit code {code}, not {' or '.join(map(str, expected.codes))}")
        if row.target == "launcher" and not outcome:
            pattern = ""
        if row.phase == "start-up":  # what never ran is an error, whose words say where it is
            pattern, whose = pattern.replace("^", ""), whose or said
        if not re.search(pattern, whose, re.DOTALL):
            faults.append(f"named {whose.splitlines()[0] if whose else said!r}, not {pattern}")
    # A job that nothing kept from its own end takes as long for it as any other.
    limit = time_factor * expected.seconds + (LONG_LEFT if row.fault == table.STOP or over else 0.0)
    if ended > limit:
        faults.append(f"took {ended:.1f} s")
    if gone > max(limit, time_factor * table.CUT_OFF_SECONDS if row.target == "link" else 0.0):
        faults.append(f"was gone after {gone:.1f} s")
    if left:
        faults.append(f"left {left}")
    if any("Traceback" in line and not line.startswith("[") for line in trial.lines):
        faults.append("a traceback")
    who = (name or {}).get("rank") or (name or {}).get("host", "")
    return {
        "where": row.where,
        "fault": row.fault,
        "target": row.target,
        "phase": row.phase,
        "hit": who if name is not None else None,
        "code": code,
        "whose": whose.splitlines()[0] if whose else "",
        "ended": ended,
        "gone": gone,
        "faults": faults,
    }


LONG_LEFT = FINISHES + 5.0
"""A job that was stopped for a while trains on for so long."""


def _line(result: dict[str, Any]) -> str:
    hit = result["hit"] if result["hit"] is not None else "(over)"
    words = f"{result['where']:4} {result['fault']:9} {result['target']:8} {hit:9} {result['phase']:8} "
    words += f"code {result['code']} in {result['ended']:.1f} s, gone {result['gone']:.1f} s; "
    words += result["whose"][:120]
    return words + "".join(f"\n       !! {fault}" for fault in result["faults"])


def summary(results: list[dict[str, Any]]) -> list[str]:
    """Return one line for each fault, target and phase."""
    lines = [
        "| where | fault | target | phase | trials | codes | longest, s | exceptions |",
        "| --- " * 8 + "|",
    ]
    keys = sorted({tuple(result[key] for key in ("where", "target", "fault", "phase")) for result in results})
    for where, target, fault, phase in keys:
        wanted = (where, target, fault, phase)
        some = [r for r in results if (r["where"], r["target"], r["fault"], r["phase"]) == wanted]
        codes = ", ".join(sorted({str(r["code"]) for r in some}))
        longest = max(max(r["ended"], r["gone"]) for r in some)
        bad = sum(bool(r["faults"]) for r in some)
        lines.append(
            f"| {where} | {fault} | {target} | {phase} | {len(some)} | {codes} | {longest:.1f} | {bad} |"
        )
    return lines


if __name__ == "__main__":
    sys.exit(main())
