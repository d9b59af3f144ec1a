"""Runs another program of this folder with its tensors exchanged by the fake NCCL. argv: program, arguments.

``RINGLEADER_TRANSPORT=distributed`` makes the code for GPUs carry tensors of the host, over Gloo; here over
the fake NCCL, which does at once what is put on its streams.
"""

import runpy
import sys
from pathlib import Path

from fake_cuda import Gpu
from fake_nccl import install

from ringleader.torch.basics import TorchAdapter
from ringleader.torch.c10d.distributed_transport import DistributedTransport

GPU = Gpu(devices=1)
GPU.synchronous = True
install(GPU)


def host_transport(self, context):
    if context.mpi_calls is None:
        return context.host
    return DistributedTransport("nccl", context, self, adasum=context.host, watch=self._watch)


real, TorchAdapter.host_transport = TorchAdapter.host_transport, host_transport
del sys.argv[0]
program = Path(__file__).parent / sys.argv[0]
sys.path.insert(0, str(program.parent))
try:
    runpy.run_path(str(program), run_name="__main__")
finally:
    TorchAdapter.host_transport = real
calls = [step for step in GPU.steps if step.startswith("nccl")]
assert len(calls) > 2, calls  # it was NCCL that carried them
