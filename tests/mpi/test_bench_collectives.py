"""`ringleader bench allreduce` and the like on real ranks: results are right, and all is kept."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ringleader.bench import run_file
from ringleader.bench.nccl_tests.json_parser import parse_json
from ringleader.measurements.collective import CollectiveRun

pytestmark = pytest.mark.mpi
CASES = Path(__file__).with_name("collective_cases.py")


def bench(directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command as a user does."""
    command = [sys.executable, "-m", "ringleader", "bench", *words, "-o", str(directory), "--name", "x"]
    return subprocess.run(command, capture_output=True, text=True, timeout=150, env=dict(os.environ))


def test_two_ranks_measure_and_check_our_engine_and_mpi(tmp_path: Path) -> None:
    sizes = ("-b", "64", "-e", "4K", "-f", "64", "--iters", "7", "-w", "1", "--redop", "avg")
    ended = bench(
        tmp_path, "allreduce", "-n", "2", *sizes, "--framework", "numpy", "--against", "mpi", "--json"
    )
    assert ended.returncode == 0, ended.stderr
    document = json.loads(ended.stdout)
    assert [one["size"] for one in document["results"]] == [64, 4096]
    for series in document["ringleader"]["series"]:
        for result in series["results"]:
            for place in ("out_of_place", "in_place"):
                measured = result[place]
                assert measured["nwrong"] == 0 and 0 < measured["low"] <= measured["high"]
                # algbw = S/t and busbw = algbw · 2(n−1)/n, which is 1 on two ranks (doc/PERFORMANCE.md)
                rate = result["size"] / measured["time"] / 1e3
                assert measured["alg_bw"] == pytest.approx(rate) == pytest.approx(measured["bus_bw"])
    run = run_file.read_any(tmp_path / "x")
    assert isinstance(run, CollectiveRun) and (run.ranks, run.per_host, run.failure) == (2, 2, "")
    assert len(run.processes) == 2 and run.series[1].note == "avg is a sum that each rank divides"
    [results] = parse_json(ended.stdout, "j")[0].tables[1].rows.values()
    assert results[1].size == 4096


@pytest.mark.long
@pytest.mark.torch
@pytest.mark.parametrize(("ranks", "names"), [(2, ("torch", "numpy", "mpi", "gloo")), (3, ("numpy", "mpi"))])
def test_every_operation_and_type_is_what_plain_mpi4py_computes(
    workplace, python, ranks: int, names: tuple[str, ...]
) -> None:
    outcome, recorder = workplace.launch(python, str(CASES), *names, np=ranks, oversubscribe=True)
    assert outcome.exit_code == 0, recorder.all("stderr")
    offered = dict(line.split() for line in recorder.text(0).splitlines() if len(line.split()) == 2)
    counts = {"torch": 272, "numpy": 136, "mpi": 160, "gloo": 160}
    assert offered == {name: str(counts[name]) for name in names}


@pytest.mark.long
def test_what_cannot_be_done_is_a_note_and_no_crash(tmp_path: Path) -> None:
    sizes = ("-b", "64", "-e", "64", "--iters", "1", "-w", "0", "-d", "half")
    ended = bench(tmp_path, "reducescatter", "-n", "2", *sizes, "--framework", "numpy", "--against", "mpi")
    assert ended.returncode == 0, ended.stderr
    assert "# Note: MPI has no float16 to reduce" in ended.stdout
    assert "# Note: reducescatter is not offered in place" in ended.stdout
