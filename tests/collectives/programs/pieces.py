"""Arrays that are larger than what one MPI call carries: the limit is a few bytes here, so small ones are."""

import sys

import mpi4py

mpi4py.rc.initialize = False
from mpi4py import MPI  # noqa: E402

if not MPI.Is_initialized():
    MPI.Init_thread(MPI.THREAD_MULTIPLE)

import numpy as np  # noqa: E402
import torch  # noqa: E402

from ringleader.engine.mpi_calls import MpiCalls  # noqa: E402
from ringleader.engine.mpi_communicator import MpiCommunicator  # noqa: E402
from ringleader.engine.operations import ReduceOp, Signature, Work  # noqa: E402
from ringleader.engine.peer_wait import PeerWait  # noqa: E402
from ringleader.engine.transports.plain_mpi import MpiTransport  # noqa: E402
from ringleader.torch.torch_kernels import TorchKernels  # noqa: E402

PATIENT = sys.argv[1] == "patient"
COMM = MPI.COMM_WORLD.Dup()
RANK, SIZE = COMM.rank, COMM.size
KERNELS = TorchKernels()
WATCH = PeerWait(rank=RANK, liveness_sources=(), warn_seconds=30, deadline_seconds=60)


class CountingComm:
    """A communicator that notes the largest message that went through one call."""

    def __init__(self, comm):
        self.comm, self.most, self.calls = comm, 0, 0

    def __getattr__(self, name):
        own = getattr(self.comm, name)
        if name in ("rank", "size"):
            return own

        def signature(*arguments, **words):
            self.calls += 1
            for message in arguments:
                if isinstance(message, list) and isinstance(message[1], int):
                    self.most = max(self.most, message[1] * message[-1].Get_size())
            return own(*arguments, **words)

        return signature


def bring(rank, dtype=torch.float32, rows=35):
    return (torch.arange(2 * rows).view(rows, 2) % 9 * (rank + 1) + rank).to(dtype)


def check_all(transport):

    def do(kind, array, out=None, splits=None, staged=False, **words):
        shape = tuple(array.shape[1:] if kind in ("allgather", "alltoall") else array.shape)
        signature = Signature(kind=kind, dtype=str(array.dtype).removeprefix("torch."), shape=shape, **words)
        work = Work(signature, 0, name=None, serial=0, array=array, out=out, splits=splits)
        transport.execute(work, staged=staged)
        return work.out

    ranks = range(SIZE)
    gathered = do("allgather", bring(RANK, rows=3 * RANK))
    assert torch.equal(gathered, torch.cat([bring(rank, rows=3 * rank) for rank in ranks]))
    assert torch.equal(do("broadcast", bring(RANK), torch.empty(35, 2), root=SIZE - 1), bring(SIZE - 1))
    splits = [[(rank + 2 * other) % 9 for other in ranks] for rank in ranks]
    parts = [bring(rank)[sum(splits[rank][:RANK]) :][: splits[rank][RANK]] for rank in ranks]
    assert torch.equal(do("alltoall", bring(RANK), splits=tuple(splits[RANK])), torch.cat(parts))
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.int16, torch.bool):
        arrays = [bring(rank, dtype) for rank in ranks]
        want = torch.stack(arrays).any(0) if dtype == torch.bool else sum(arrays[1:], arrays[0])
        reduced = do("allreduce", arrays[RANK], torch.empty_like(want), op=ReduceOp.SUM)
        assert torch.equal(reduced, want), (dtype, reduced, want)
        own = torch.from_numpy(np.array_split(want.float().numpy(), SIZE)[RANK]).to(dtype)
        assert torch.equal(do("reducescatter", arrays[RANK], op=ReduceOp.SUM), own)
        transport.scatter_bytes = 50
        assert torch.equal(do("reducescatter", arrays[RANK], staged=0, op=ReduceOp.SUM), own)
    if SIZE & (SIZE - 1) == 0:
        same = do("allreduce", bring(0), torch.empty(35, 2), op=ReduceOp.ADASUM)
        assert torch.allclose(same, bring(0))


calls = []
for most in (1 << 30, 64):
    comm = CountingComm(COMM)
    mpi_calls = MpiCalls(MpiCommunicator(MPI, comm), WATCH, polling=PATIENT, most_bytes=most)
    check_all(MpiTransport(mpi_calls, KERNELS, between_hosts=PATIENT))
    assert 0 < comm.most <= most, comm.most
    calls.append(comm.calls)
assert calls[0] < calls[1]
COMM.Free()
print("rank done", flush=True)
