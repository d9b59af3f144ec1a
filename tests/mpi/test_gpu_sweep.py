"""Messages of torch.distributed between two local ranks: Gloo stands in for NCCL, which needs two GPUs."""

import json

import pytest

pytestmark = [pytest.mark.mpi, pytest.mark.torch, pytest.mark.long]

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


def test_all_sizes_are_measured(workplace, python):
    pytest.importorskip("torch")
    outcome, recorder = workplace.launch(python, "-c", PAIR, np=2)
    assert outcome.exit_code == 0, recorder.all("stderr")
    _left, found = json.loads(recorder.text(0))
    assert found and found[0]["size"] == 1
    for one in found:
        assert min(one[name] for name in ("latency", "rate", "back_rate", "both_ways_rate")) > 0
