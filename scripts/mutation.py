"""Mutation testing of a few packages with mutmut: `make test-mutation`, WORDS='render --sample 300' for one.

`tests/mutation.toml` names the packages, their tests, and the floor: how many mutants were noticed before.
The work is done in copies under build/mutation; beside each are the log and the mutants that survived.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FLOOR = ROOT / "tests/mutation.toml"
PLACE = ROOT / "build/mutation"
NOTICED = {
    1: "failed",
    3: "failed",
    36: "too slow",
    -24: "too slow",
    24: "too slow",
    152: "too slow",
    255: "too slow",
}
"""mutmut's exit codes of mutants that the tests notice: a test fails, or does not end."""


def prepare(name: str, package: dict[str, Any]) -> Path:
    """Make a copy of what git knows, with mutmut's configuration for one package."""
    place = PLACE / name
    shutil.rmtree(place, ignore_errors=True)
    listed = subprocess.run(("git", "ls-files", "-z"), cwd=ROOT, capture_output=True, check=True).stdout
    for file in filter(None, listed.decode().split("\0")):
        if (ROOT / file).is_file():
            (place / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / file, place / file)
    tests = sorted(str(path.relative_to(ROOT)) for glob in package["tests"] for path in ROOT.glob(glob))
    settings = {
        "source_paths": ["src"],
        "only_mutate": [f"src/ringleader/{glob}" for glob in package["modules"]],
        "also_copy": sorted(path.name for path in place.iterdir() if path.name not in ("src", "tests")),
        "pytest_add_cli_args": ["-m", "not process and not long", "-p", "no:cacheprovider"],
        "pytest_add_cli_args_test_selection": tests,
        "track_dependencies": False,
        "use_git_change_detection": False,
    }
    lines = [f"{key} = {json.dumps(value)}\n" for key, value in settings.items()]
    with (place / "pyproject.toml").open("a") as file:
        file.write("\n[tool.mutmut]\n" + "".join(lines))
    return place


def results(place: Path) -> dict[str, int | None]:
    """Return the mutants of a copy and the exit code of the tests on each, as far as they are known."""
    found: dict[str, int | None] = {}
    for file in (place / "mutants").rglob("*.meta"):
        found |= json.loads(file.read_text())["exit_code_by_key"]
    return found


def mutmut(place: Path, *names: str) -> None:
    """Run mutmut in a copy; what it prints is kept beside it."""
    # It starts pytest in its own process: what tests are run with must not be inherited from a stage.
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    with place.with_suffix(".log").open("ab") as log:
        command = (Path(sys.executable).with_name("mutmut"), "run", "--max-children", "2", *names)
        subprocess.run(command, cwd=place, env=environ, stdout=log, stderr=log, check=False)


def measure(name: str, package: dict[str, Any], seed: int, sample: int) -> dict[str, int]:
    """Return how many mutants were tried and how many of them the tests noticed."""
    place = prepare(name, package)
    mutmut(
        place, "none of them"
    )  # makes the mutants, finds which tests run which function, then matches nothing
    everyone = sorted(results(place))
    if not (place / "mutants/mutmut-stats.json").exists() or not everyone:
        sys.exit(f"{name}: mutmut did not get to mutants; see {place.with_suffix('.log')}")
    drawn = sorted(random.Random(seed).sample(everyone, min(sample, len(everyone))))
    mutmut(place, *drawn)
    codes = {mutant: code for mutant, code in results(place).items() if mutant in set(drawn)}
    how = Counter(
        NOTICED.get(code, "no test" if code in (5, 33) else "survived")
        for code in codes.values()
        if code is not None
    )
    survivors = [mutant for mutant, code in sorted(codes.items()) if code is not None and code not in NOTICED]
    place.with_suffix(".survived").write_text("\n".join(survivors) + "\n")
    found = {"mutants": len(everyone), "tried": how.total(), "killed": how["failed"] + how["too slow"]}
    print(f"{name}: {found} {dict(how)}; survivors in {place.with_suffix('.survived')}", flush=True)
    return found


def below(found: dict[str, int], floor: dict[str, int]) -> bool:
    """True where fewer are noticed than before, by more than what two drawings differ."""
    share, before = found["killed"] / found["tried"], floor["killed"] / floor["tried"]
    chance = math.sqrt(before * (1 - before) * (1 / found["tried"] + 1 / floor["tried"]))
    return share < before - 2 * chance


def store(name: str, found: dict[str, int]) -> None:
    """Write the floor of a package into `tests/mutation.toml`."""
    head, _, rest = FLOOR.read_text().partition(f"[{name}]\n")
    body, gap, after = rest.partition("\n[")
    kept = [line for line in body.splitlines() if line and line.split(" = ")[0] not in found]
    lines = [*kept, *(f"{key} = {value}" for key, value in found.items())]
    FLOOR.write_text(f"{head}[{name}]\n" + "\n".join(lines) + "\n" + gap + after)


def main() -> int:
    table = tomllib.loads(FLOOR.read_text())
    seed = table.pop("seed")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "packages", nargs="*", metavar="PACKAGE", help=f"of {', '.join(table)}; all by default"
    )
    parser.add_argument("--sample", type=int, help="mutants of each package, not the stored number")
    parser.add_argument("--store", action="store_true", help="write what is found as the floor")
    options = parser.parse_args()
    if unknown := set(options.packages) - set(table):
        parser.error(f"no package {', '.join(sorted(unknown))}: there are {', '.join(table)}")
    fallen = []
    for name in options.packages or table:
        package = table[name]
        sample = options.sample or package["sample"]
        found = measure(name, package, seed, sample)
        if options.store:
            store(name, {"sample": sample, **found})
        elif "killed" not in package:
            print(f"{name}: no floor is stored yet; --store stores this one")
        elif below(found, package):
            fallen.append(name)
            print(f"FAILED: {name}: the floor is {package['killed']} of {package['tried']}")
    return int(bool(fallen))


if __name__ == "__main__":
    sys.exit(main())
