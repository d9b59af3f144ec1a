"""Kills ranks, hosts and links of elastic jobs, and measures how long they take to go on.

    python tests/campaigns/elastic.py [PART …] [--kills 200] [--trials 2] [--stops 100] [--layout host|lab]

``ranks``: one job after the other loses ranks in every phase, killed, by an exception and by an exit code;
every result is checked, survivors are the processes that they were, and what the job holds does not grow.
In a lab, as root: ``hosts``: processes of hosts and their links. ``changes``: hosts come and go by a
discovery script. ``two``: two failures at once, while a world starts, during a switch. ``stopped``: MPI
proxies are stopped across a switch. ``returns``, on this host or in a lab (``--layout``): hosts leave while
ranks return. A table is printed; what did not go on is an exception, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from elastic_hosts import changes, hosts
from elastic_ranks import ranks
from elastic_returns import returns
from elastic_stopped import stopped
from elastic_trial import Result
from elastic_two import two
from faults_world import unwind

PARTS: dict[str, Callable[[argparse.Namespace], Iterator[Result]]] = {
    "ranks": ranks,
    "hosts": hosts,
    "changes": changes,
    "two": two,
    "stopped": stopped,
    "returns": returns,
}


def main() -> int:
    """Carry out what the command line asks for."""
    words = _words()
    words.left = []
    results = list[Result]()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, unwind)
    with contextlib.suppress(KeyboardInterrupt):
        for part in words.parts or ["ranks"]:
            for result in PARTS[part](words):
                results.append({"part": part} | result)
                print(f"{len(results):5} {_line(results[-1])}", file=sys.stderr, flush=True)
    for line in table(results):
        print(line)
    for one in results:
        print("".join(f"\n{line}" for line in one.get("table", [])))
    exceptions = [one for one in results if one["faults"]]
    for one in exceptions:
        print(f"\n!! {_line(one)}")
        print("".join(f"   | {line}\n" for line in one["output"]), end="")
    for left in words.left:
        print(f"!! left by {left}")
    load = " ".join(f"{number:.1f}" for number in os.getloadavg())
    print(f"\n{len(results)} trials, {len(exceptions)} exceptions, {len(words.left)} left; load {load}")
    if words.json_file:
        Path(words.json_file).write_text(json.dumps(results, indent=1))
    return 1 if exceptions or words.left or not results else 0


def _words() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", choices=tuple(PARTS), metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--kills", type=int, default=200, help="strikes of ranks")
    parser.add_argument("--trials", type=int, default=2, help="of each kind; changes of hosts: ten times")
    parser.add_argument("--stops", type=int, default=100, help="changes across which proxies are stopped")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--layout", choices=("host", "lab"), default="host", help="where ranks are struck")
    parser.add_argument("--mpi", default="embedded")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds of training between strikes")
    parser.add_argument(
        "--only", default="", help="of hosts, two and returns the kinds with this in their names"
    )
    parser.add_argument("--sample", action="store_true", help="of the kinds a third, or a fifth")
    parser.add_argument("--json-file")
    return parser.parse_args()


def _line(result: Result) -> str:
    seconds = "" if result["seconds"] is None else f"{result['seconds']:.3f} s"
    faults = "; ".join(result["faults"])
    return f"{result['part']:8} {result['what']:34} {result['who']:16} {seconds:>9}  {faults}"


def table(results: list[Result]) -> Iterator[str]:
    """Return the times by what was done."""
    groups = defaultdict[str, list[float]](list)
    for one in results:
        if one["seconds"] is not None and not one["faults"]:
            groups[f"{one['part']}: {one['what']}"].append(one["seconds"])
            groups[f"{one['part']}: all"].append(one["seconds"])
        if "begins" in one and not one["faults"]:
            groups[f"{one['part']}: all, until the first step begins"].append(one["begins"])
        if "step" in one:
            groups[f"{one['part']}: a step when nothing happens"].append(one["step"])
    yield f"{'':48} {'n':>5} {'p50 s':>8} {'p90 s':>8} {'p99 s':>8} {'max s':>8}"
    for name, found in sorted(groups.items()):
        found.sort()
        at = [found[min(len(found) - 1, int(len(found) * part))] for part in (0.9, 0.99)]
        numbers = (statistics.median(found), *at, found[-1])
        yield f"{name:48} {len(found):5} " + " ".join(f"{number:8.3f}" for number in numbers)


if __name__ == "__main__":
    sys.exit(main())
