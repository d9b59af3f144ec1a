"""Calls every command with bad input and in hostile surroundings; prints what came of it and every exception.

    python tests/campaigns/bad_input.py [--sample 200] [--seed 1] [--only 'lab up'] [--json-file FILE]

No traceback, nothing left behind, a documented exit code, a message that names the fault, an end in bounded
time: whatever lacks one of these is an exception, and the exit code is 1. Needs root: each worker lives in
namespaces of its own (mounts, processes, network), so that disks can be full and what is left can be seen.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import bad_input_cases as cases_of
import bad_input_world as world_of
from campaign import Result, report

NAMESPACES = (
    *("unshare", "--mount", "--propagation", "private", "--pid", "--net"),
    *("--fork", "--kill-child", "--mount-proc"),
)


def main() -> int:
    words = _words()
    if words.worker is not None:
        _work(words)
        return 0
    chosen, results = _chosen(words), _in_workers(words)
    further = [
        f"{name}: no case calls this command; add it to SUBJECTS in bad_input_cases.py"
        for name in cases_of.unknown_commands()
    ]
    if missing := len(chosen) - len(results):
        further.append(f"{missing} cases have no result")
    return report(results, _table(results), further, words.json_file)


def _words() -> Any:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sample", type=int, help="this many cases by chance, of every command at least one")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", help="cases with this in their name")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json-file")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--results", help=argparse.SUPPRESS)
    return parser.parse_args()


def _chosen(words: Any) -> list[cases_of.Case]:
    found = cases_of.all_cases()
    if words.only:
        found = [case for case in found if words.only in case.name]
    return found if words.sample is None else cases_of.sample(found, words.sample, words.seed)


def _work(words: Any) -> None:
    """Be one of the workers: run every n-th case and write each result as a line of JSON."""
    with open(words.results, "w", encoding="utf-8") as out:
        world_of.make_world()
        world = world_of.World()
        for case in _chosen(words)[words.worker :: words.jobs]:
            print(json.dumps(world.result(case)), file=out, flush=True)


def _in_workers(words: Any) -> list[Result]:
    with tempfile.TemporaryDirectory() as directory:
        files = [Path(directory, str(number)) for number in range(words.jobs)]
        workers = [
            subprocess.Popen((*NAMESPACES, sys.executable, __file__, *sys.argv[1:], "--jobs", str(words.jobs),
                              "--worker", str(number), "--results", str(file)), stdin=subprocess.DEVNULL)
            for number, file in enumerate(files)
        ]  # fmt: skip
        try:
            codes = [worker.wait() for worker in workers]
        finally:
            for worker in workers:
                worker.kill()
        if any(codes):
            print("!! a worker failed", file=sys.stderr)
        lines = [line for file in files if file.exists() for line in file.read_text().splitlines()]
        return [json.loads(line) for line in lines]


def _table(results: list[Result]) -> list[str]:
    """Return a line for each command and surroundings: how often, exit codes, slowest, a first message."""
    groups: dict[tuple[str, str], list[Result]] = {}
    for one in results:
        groups.setdefault((one["command"], one["surroundings"]), []).append(one)
    lines = [
        f"{'command':19}{'surroundings':22}{'cases':>6}{'bad':>5}  {'codes':22}{'slowest':>8}  first message"
    ]
    for (command, surroundings), group in sorted(groups.items()):
        codes = Counter(str(one["code"]) for one in group)
        shown = " ".join(f"{code}×{count}" for code, count in sorted(codes.items()))
        bad = sum(bool(one["faults"]) for one in group)
        slowest = max(one["seconds"] for one in group)
        message = next((one["message"] for one in group if one["message"]), "")[:90]
        lines.append(
            f"{command:19}{surroundings:22}{len(group):6}{bad:5}  {shown:22}{slowest:7.1f}s  {message}"
        )
    return lines


if __name__ == "__main__":
    sys.exit(main())
