"""How long a user waits for an image's text: whole processes, from the command line to the last byte.

    python benchmarks/image_render.py [--repeat 7] [--limit] [--json]

`render` is one profile, its check included; `check` is all profiles. Beside them stands an interpreter that
does nothing. Where hpccm is installed (it is not asked for), its rendering of a small recipe stands there.
With --limit the exit code is 1 where a median is above what is required.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path

PROFILE = "pytorch-2.8-roce"
PEER = """Stage0 += baseimage(image='nvidia/cuda:12.8.1-devel-ubuntu24.04', _as='devel')
Stage0 += gnu()
Stage0 += ucx(version='1.19.1', cuda=True)
Stage0 += openmpi(version='4.1.8', ucx='/usr/local/ucx', infiniband=False)
Stage0 += pip(packages=['torch'])
Stage1 += baseimage(image='nvidia/cuda:12.8.1-base-ubuntu24.04')
Stage1 += Stage0.runtime()
"""


@dataclass(frozen=True, kw_only=True)
class Result:
    """One command."""

    what: str
    median_s: float
    worst_s: float
    required_s: float | None


def measure(what: str, argv: list[str], repeat: int, required: float | None = None) -> Result:
    """Time some runs of a command, after one that is not counted; a failure ends the benchmark."""
    times = []
    for _ in range(repeat + 1):
        begin = time.perf_counter()
        subprocess.run(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
        times.append(time.perf_counter() - begin)
    median, worst = statistics.median(times[1:]), max(times[1:])
    return Result(what=what, median_s=median, worst_s=worst, required_s=required)


def results(repeat: int) -> list[Result]:
    """Measure every command."""
    ours = [str(Path(sys.executable).parent / "ringleader")]
    found = [
        measure("an interpreter alone", [sys.executable, "-c", ""], repeat),
        measure(f"image render {PROFILE}", [*ours, "image", "render", PROFILE], repeat, 0.3),
        measure("image check, all profiles", [*ours, "image", "check"], repeat, 1.0),
    ]
    if find_spec("hpccm") is not None:
        with tempfile.TemporaryDirectory() as directory:
            recipe = Path(directory) / "recipe.py"
            recipe.write_text(PEER)
            argv = [sys.executable, "-m", "hpccm.cli", "--recipe", str(recipe)]
            found.append(measure("hpccm, two stages", argv, repeat))
    return found


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--limit", action="store_true", help="exit code 1 where a requirement is not met")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = results(options.repeat)
    if options.json:
        print(json.dumps([asdict(one) for one in found], indent=2))
    else:
        for one in found:
            required = f"required {one.required_s:.1f} s" if one.required_s else ""
            print(f"{one.what:32} median {one.median_s:.2f} s   worst {one.worst_s:.2f} s   {required}")
    slow = [one for one in found if one.required_s is not None and one.median_s > one.required_s]
    return 1 if options.limit and slow else 0


if __name__ == "__main__":
    sys.exit(main())
