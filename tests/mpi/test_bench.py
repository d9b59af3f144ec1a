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


# --- pairs ------------------------------------------------------------------------------------------------


def test_two_ranks_of_this_machine(workplace, tmp_path):
    words = (
        "--seconds",
        "2",
        "-f",
        "1024",
        "-e",
        "1M",
        "--bidirectional",
        "-o",
        str(tmp_path),
        "--name",
        "a",
    )
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


PAIRS = """
import json, sys, time
from mpi4py import MPI
from ringleader.bench.pair_plan import PairPlan
from ringleader.bench.pair_rounds import first_rounds
from ringleader.bench.pair_sweep import PairSweep, buffers
from ringleader.bench.peer import Peer, SilentPartnerError
world = MPI.COMM_WORLD
rounds = first_rounds(world.size)
plan = PairPlan(rounds=rounds, sizes=(8, 65536), window=8, both_ways=True, pair_seconds=3.0)
memory, found = buffers(plan), {}
for turn, pairs in enumerate(rounds):
    for first, second in pairs:
        if world.rank not in (first, second):
            continue
        other = second if world.rank == first else first
        peer = Peer(world, other, turn, time.monotonic() + 60)
        assert peer.exchange(world.rank + 1) == other + 1
        sweep = PairSweep(peer, plan, memory, leads=world.rank == first)
        if world.rank == first:
            rows = []
            assert not sweep.lead(rows.append)
            assert [row["size"] for row in rows] == [8, 65536] and rows[0]["latency"] > 0
            found[other] = [rows[1][name] for name in ("rate", "back_rate", "both_ways_rate")]
        else:
            sweep.follow()
if world.size == 2 and world.rank == 0:
    try:
        Peer(world, 1, 9, time.monotonic() + 0.2).exchange()
    except SilentPartnerError as error:
        assert (error.partner, error.during) == (1, "meeting") and error.seconds > 0.1
    else:
        raise AssertionError("nobody answered, and nobody was missed")
    world.Barrier()
if world.size == 2 and world.rank == 1:
    world.Barrier()
    Peer(world, 0, 9, time.monotonic() + 60).exchange()  # late: what rank 0 left still arrives
print(json.dumps(found), flush=True)
"""


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.long)])
def test_every_pair_measures_and_a_silent_partner_is_named(workplace, python, ranks):
    outcome, recorder = workplace.launch(python, "-c", PAIRS, np=ranks)
    assert outcome.exit_code == 0, recorder.all("stderr")
    pairs = 0
    for rank in range(ranks):
        led = json.loads(recorder.text(rank))
        pairs += len(led)
        assert all(rate > 1e5 for rates in led.values() for rate in rates)
    assert pairs == ranks * (ranks - 1) // 2


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
