"""Every wheel that the test's image needs, fetched with this machine's pip and its configuration.

The image is then built without any index, so that nothing of that configuration (index, mirror, certificate)
has to enter it.
"""

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

from tests.commands import finished

from ringleader.images.blocks.system import DEPENDENCIES

CPU_INDEX = "https://download.pytorch.org/whl/cpu"
TAGS = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_17", "manylinux2014", "manylinux_2_5", "manylinux1")


class NoCpuWheelError(Exception):
    """Only a wheel of PyTorch with CUDA, gigabytes of it, is to be had here."""


def made(cache: Path, *, python: str, machine: str, torch: str, further: tuple[str, ...]) -> Path:
    """Return the directory of wheels for Python ``3.11`` on ``x86_64``; it is filled where it is not yet."""
    wanted = (f"torch=={torch}", *further, *DEPENDENCIES)
    key = hashlib.sha256("\n".join([*wanted, python, machine]).encode()).hexdigest()[:8]
    target = cache / f"wheels-{key}"
    if not target.is_dir():
        partial = cache / f"partial-wheels-{key}"
        shutil.rmtree(partial, ignore_errors=True)
        place = _platform(python, machine)
        index = _index_of_cpu_wheel(wanted[0], place)
        _pip("download", "--quiet", *place, *index, "--dest", str(partial), *wanted)
        partial.rename(target)
    return target


def _platform(python: str, machine: str) -> list[str]:
    """Return what tells pip for whom the wheels are, where that is not this interpreter."""
    only = ["--only-binary=:all:"]
    if python == f"{sys.version_info.major}.{sys.version_info.minor}":
        return only
    tags = [word for tag in TAGS for word in ("--platform", f"{tag}_{machine}")]
    return [*only, "--python-version", python, "--implementation", "cp", *tags]


def _index_of_cpu_wheel(torch: str, place: list[str]) -> list[str]:
    for index in ([], ["--extra-index-url", CPU_INDEX, "--retries", "1", "--timeout", "30"]):
        target = ["--target", "/nonexistent"] if len(place) > 1 else []
        words = ["install", "--quiet", "--dry-run", "--no-deps", "--ignore-installed", "--report", "-"]
        said = _pip(*words, *target, *place, *index, torch)
        (chosen,) = json.loads(said)["install"]
        needs = chosen["metadata"].get("requires_dist", [])
        if not any(need.startswith(("nvidia-", "cuda-")) for need in needs):
            return index
    raise NoCpuWheelError(f"pip finds no {torch} without CUDA here, in {CPU_INDEX} neither")


def _pip(*words: str) -> str:
    done = finished(
        [*("nice", "-n", "5"), sys.executable, "-m", "pip", "--disable-pip-version-check", *words],
        stdin=subprocess.DEVNULL,
        errors="replace",
        timeout=400,
    )
    assert done.returncode == 0, f"pip {words[0]}: exit code {done.returncode}\n{done.stderr[-3000:]}"
    return done.stdout
