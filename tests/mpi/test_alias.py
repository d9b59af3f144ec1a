"""Scripts written for Horovod on real ranks, unchanged."""

import pytest
from tests.time_limits import patience

pytestmark = [pytest.mark.mpi, pytest.mark.torch]

SCRIPT = """
import pickle
import subprocess
import sys

import torch
import horovod.torch as hvd
from horovod.common.exceptions import HorovodInternalError
from horovod.torch.mpi_ops import synchronize

torch.set_num_threads(1)
hvd.init()
import ringleader.torch
assert hvd is ringleader.torch

torch.manual_seed(hvd.rank())
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * hvd.size())
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters(), op=hvd.Average)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)
for step in range(3):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
weights = hvd.allgather(model.weight.detach().reshape(1, -1))
assert all(torch.equal(row, weights[0]) for row in weights)
assert synchronize(hvd.allreduce_async(torch.ones(3), op=hvd.Sum)).tolist() == [hvd.size()] * 3
try:
    hvd.allreduce(torch.ones(2 + hvd.rank()), name="unequal")
    print("no error")
except HorovodInternalError:
    pass
below = "import horovod.common.util as u; print(u.__name__)"
child = subprocess.run([sys.executable, "-c", below], capture_output=True, text=True)
print("trained on", hvd.size(), type(optimizer).__name__, child.stdout.strip(), flush=True)
"""
SAID = ["trained on 2 SGD ringleader.adapters.util"] * 2


@pytest.mark.smoke
def test_a_job_as_horovod(workplace):
    script = workplace.tmp / "train.py"
    script.write_text(SCRIPT)
    words = ("--as-horovod", "--timeout", str(patience(75)), "-n", "2", "--oversubscribe", "--no-prefix")
    done = workplace.run("run", *words, "python", str(script))
    assert (done.returncode, done.stderr.decode()) == (0, "")
    assert done.stdout.decode().splitlines() == SAID
