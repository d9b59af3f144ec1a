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

sys.path.insert(0, str(Path(__file__).parent))

import bad_input_cases as cases_of
import bad_input_world as world_of
from campaign import Result, arguments, report

NAMESPACES = (
    *("unshare", "--mount", "--propagation", "private", "--pid", "--net"),
    *("--fork", "--kill-child", "--mount-proc"),
)


def main() -> int:
    """Carry out what the command line asks for, or be one of the workers that do."""
    parser = arguments(__doc__)
    parser.add_argument("--sample", type=int, help="this many cases by chance, of every command at least one")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--results", help=argparse.SUPPRESS)
    words = parser.parse_args()
    chosen = [case for case in cases_of.all_cases() if words.only in case.name]
    if words.sample is not None:
        chosen = cases_of.sample(chosen, words.sample, words.seed)
    if words.worker is not None:
        with open(words.results, "w", encoding="utf-8") as out:
            world_of.make_world()
            world = world_of.World()
            for case in chosen[words.worker :: words.jobs]:
                print(json.dumps(world.result(case)), file=out, flush=True)
        return 0
    results = _in_workers(words.jobs)
    further = [
        f"{name}: no case calls this command; add it to SUBJECTS in bad_input_cases.py"
        for name in cases_of.unknown_commands()
    ]
    if missing := len(chosen) - len(results):
        further.append(f"{missing} cases have no result")
    return report(results, _table(results), further, words.json_file)


def _in_workers(jobs: int) -> list[Result]:
    with tempfile.TemporaryDirectory() as directory:
        files = [Path(directory, str(number)) for number in range(jobs)]
        words = (*NAMESPACES, sys.executable, __file__, *sys.argv[1:], "--jobs", str(jobs))
        workers = [
            subprocess.Popen(
                (*words, "--worker", str(number), "--results", str(file)), stdin=subprocess.DEVNULL
            )
            for number, file in enumerate(files)
        ]
        try:
            if any([worker.wait() for worker in workers]):
                print("!! a worker failed", file=sys.stderr)
        finally:
            for worker in workers:
                worker.kill()
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
        bad, slowest = sum(bool(one["faults"]) for one in group), max(one["seconds"] for one in group)
        message = next((one["message"] for one in group if one["message"]), "")[:90]
        lines.append(
            f"{command:19}{surroundings:22}{len(group):6}{bad:5}  {shown:22}{slowest:7.1f}s  {message}"
        )
    return lines


if __name__ == "__main__":
    sys.exit(main())
