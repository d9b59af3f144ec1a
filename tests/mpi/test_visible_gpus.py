"""Which GPUs ranks see under each launcher: those of the host are named by a variable, no GPU is needed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.commands import finished

pytestmark = pytest.mark.mpi

SCRIPT = """
import os
gpus = os.environ["CUDA_VISIBLE_DEVICES"].split(",")
own = gpus[int(os.environ["LOCAL_RANK"]) % len(gpus)]  # what torch.cuda.set_device(hvd.local_rank()) takes
print("sees", ",".join(gpus), "takes", own, "JAX takes", gpus[int(os.environ["JAX_CUDA_VISIBLE_DEVICES"])])
"""
RUN = (sys.executable, "-m", "ringleader", "run", "--no-prefix", "-n", "2")
HOROVODRUN = (str(Path(sys.executable).with_name("horovodrun")), "-np", "2")


@pytest.mark.parametrize(
    ("launcher", "visible", "seen"),
    [
        ((*RUN, "--min-np", "2"), "0,1", {("0,1", "0"), ("0,1", "1")}),
        (HOROVODRUN, "0,1", {("0,1", "0"), ("0,1", "1")}),
        ((*RUN, "--own-gpu"), "GPU-a,GPU-b", {("GPU-a", "GPU-a"), ("GPU-b", "GPU-b")}),
        ((*RUN, "--share-gpus"), "3", {("3", "3")}),
    ],
    ids=["elastic", "horovodrun", "own", "shared"],
)
def test_a_rank_finds_its_own_gpu_by_its_local_rank(
    launcher: tuple[str, ...], visible: str, seen: set[tuple[str, str]]
) -> None:
    done = finished(
        [*launcher, sys.executable, "-c", SCRIPT],
        timeout=120,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": visible},
    )
    assert done.returncode == 0, done.stderr
    lines = [line[line.index("sees") :].split() for line in done.stdout.splitlines() if "sees" in line]
    assert len(lines) == 2 and {(line[1], line[3]) for line in lines} == seen, done.stdout
    assert all(line[3] == line[-1] for line in lines)


def test_ranks_beyond_the_gpus_are_refused_with_the_cure() -> None:
    done = finished(
        [*RUN, "true"], timeout=120, stdin=subprocess.DEVNULL, env={**os.environ, "CUDA_VISIBLE_DEVICES": "0"}
    )
    assert done.returncode == 2 and "--share-gpus" in done.stderr, done.stderr
