"""``ringleader bench`` on real ranks: collectives, pairs, training; results are right, and all is kept."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ringleader.bench import run_file
from ringleader.bench.nccl_tests.json_parser import parse_json
from ringleader.cli.main import main
from ringleader.measurements.collective import CollectiveRun
from ringleader.measurements.training import TrainingRun

pytestmark = pytest.mark.mpi

# --- collectives ------------------------------------------------------------------------------------------

PLACES = ("out_of_place", "in_place")


def bench(directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command as a user does."""
    command = [sys.executable, "-m", "ringleader", "bench", *words, "-o", str(directory), "--name", "x"]
    return subprocess.run(command, capture_output=True, text=True, timeout=150, env=dict(os.environ))


def test_two_ranks_measure_and_check_our_engine_and_mpi(tmp_path: Path) -> None:
    options = "allreduce -n 2 -b 64 -e 4K -f 64 --iters 7 -w 1 --redop avg --framework numpy --against mpi"
    ended = bench(tmp_path, *options.split(), "--json")
    assert ended.returncode == 0, ended.stderr
    document = json.loads(ended.stdout)
    assert [one["size"] for one in document["results"]] == [64, 4096]
    for series in document["ringleader"]["series"]:
        for result in series["results"]:
            for place in PLACES:
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
@pytest.mark.parametrize(
    "words",
    [
        "allreduce --redop max -d int8",
        "allreduce --redop avg",
        "reducescatter -d double",
        "allgather -d uint8",
        "broadcast --root 1",
        "alltoall",
        "sendrecv",
    ],
)
def test_every_operation_of_every_implementation_is_right(tmp_path: Path, words: str) -> None:
    """What is expected is computed apart from it: tests/unit/test_collective_values.py."""
    size = ("-n", "2", "-b", "64", "-e", "64", "--iters", "2", "-w", "0", "--against", "mpi,gloo", "--json")
    ended = bench(tmp_path, *words.split(), *size)
    assert ended.returncode == 0, ended.stderr
    series = json.loads(ended.stdout)["ringleader"]["series"]
    places = [result[place] for one in series for result in one["results"] for place in PLACES]
    assert len(series) == 3 and all(place["nwrong"] == 0 for place in places if place), places


# --- pairs ------------------------------------------------------------------------------------------------


def test_two_ranks_of_this_machine(workplace, tmp_path):
    options = "--seconds 2 -f 1024 -e 1M --bidirectional --name a"
    words = (*options.split(), "-o", str(tmp_path))
    done = workplace.run("bench", "p2p", *words)
    assert done.returncode == 0, done.stderr
    assert b"# Size" in done.stdout and b"Latency (us)" in done.stdout
    run = json.loads((tmp_path / "a/run.json").read_text())
    assert run["kind"] == "point-to-point" and not run["failure"] and not run["silences"]
    assert [place["host"] for place in run["places"]] == ["localhost", "localhost"]
    small = [one for one in run["transfers"] if one["size"] == 1]
    assert len(small) == 2 and all(one["latency"] > 0 and one["rate"] > 0 for one in small)
    again = workplace.run("bench", "p2p", *words)
    assert again.returncode == 2 and b"--replace" in again.stderr


PAIR = """
import json, os, sys, time
from datetime import timedelta
import torch
from mpi4py import MPI
from torch.distributed import PrefixStore, ProcessGroupGloo, TCPStore
from ringleader.bench.gpu_sweep import GpuSweep
from ringleader.bench.pair_plan import PairPlan
from ringleader.bench.pair_sweep import buffers
from ringleader.bench.peer import Peer

class Gloo:
    def __init__(self, store, leads):
        self.group = ProcessGroupGloo(store, 0 if leads else 1, 2, timedelta(seconds=30))
        self.peer, self.works = int(leads), []
    def send(self, part):
        self.works.append(self.group.send([part], self.peer, 0))
    def receive(self, part):
        self.works.append(self.group.recv([part], self.peer, 0))
    def both(self, out, into):
        for there, here in zip(out, into):
            self.send(there)
            self.receive(here)
    def is_done(self):
        works, self.works = self.works, []
        for work in works:
            work.wait()
        return True

world = MPI.COMM_WORLD
where = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
store = TCPStore(*where, is_master=world.rank == 0, wait_for_workers=False)
plan = PairPlan(rounds=(((0, 1),),), sizes=(1, 4096, 65536), window=4, both_ways=True, pair_seconds=1.0)
def allocate(size):
    return torch.ones(size, dtype=torch.uint8)

peer, found = Peer(world, 1 - world.rank, 0, time.monotonic() + 60), []
sweep = GpuSweep(
    peer, plan, buffers(plan, allocate), leads=world.rank == 0, allocate=allocate,
    open_channel=lambda turn, partner, leads: Gloo(PrefixStore(str(turn), store), leads),
)
if world.rank == 0:
    left = sweep.lead(found.append)
    print(json.dumps([left, found]), flush=True)
else:
    sweep.follow()
world.Barrier()
"""


@pytest.mark.torch
@pytest.mark.long
def test_all_sizes_are_measured(workplace, python):
    pytest.importorskip("torch")
    outcome, recorder = workplace.launch(python, "-c", PAIR, np=2)
    assert outcome.exit_code == 0, recorder.all("stderr")
    _left, found = json.loads(recorder.text(0))
    assert found and found[0]["size"] == 1
    for one in found:
        assert min(one[name] for name in ("latency", "rate", "back_rate", "both_ways_rate")) > 0


# --- training ---------------------------------------------------------------------------------------------


def train(directory: Path, *words: str) -> int:
    options = "-n 2 --oversubscribe --device cpu --name t --repeats 2 --steps 3 --warmup 1"
    return call("bench", "train", *options.split(), "-o", str(directory), *words)


def call(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    return int(ended.value.code or 0)


def stored(directory: Path) -> TrainingRun:
    run = run_file.read_any(directory / "t")
    assert isinstance(run, TrainingRun)
    return run


@pytest.mark.torch
@pytest.mark.long
def test_all_arms_of_a_cpu(tmp_path, capsys):
    assert train(tmp_path, "--model", "mnist", "--batch", "2") == 0
    shown, run = capsys.readouterr().out, stored(tmp_path)
    measured = [arm.name for arm in run.arms if arm.rates]
    assert measured == ["ringleader", "ringleader-sharded", "ddp-gloo", "uncoupled", "in step"]
    assert len(run.alone.rates) == 2
    assert "ddp-nccl: NCCL needs a GPU" in shown and not run.failure
    for arm in run.arms:
        assert len(arm.rates) == len(arm.splits) == (2 if arm.name in measured else 0)
    assert run.arm("uncoupled").split.exchange == 0 < run.arm("ddp-gloo").split.exchange
    assert run.parameters == 225_034 and run.gradient_bytes == 4 * run.parameters
    assert [layer.name for layer in run.layers] == ["0", "3", "7", "9"]
    assert sum(layer.bytes for layer in run.layers) == run.gradient_bytes
    assert call("predict", str(tmp_path / "t" / "profile.toml"), "--ranks", "1,2,4") == 0
    assert "measured" in capsys.readouterr().out


@pytest.mark.long
def test_what_cannot_be_done_is_a_note_and_no_crash(tmp_path: Path) -> None:
    sizes = ("-b", "64", "-e", "64", "--iters", "1", "-w", "0", "-d", "half")
    ended = bench(tmp_path, "reducescatter", "-n", "2", *sizes, "--framework", "numpy", "--against", "mpi")
    assert ended.returncode == 0, ended.stderr
    assert "# Note: MPI has no float16 to reduce" in ended.stdout
    assert "# Note: reducescatter is not offered in place" in ended.stdout
