"""Sets that are given to init, and worlds of some of the ranks. Four ranks; argv: how."""

import sys

import torch
from refusals import refused

import ringleader.torch as hvd
from ringleader.adapters.process_sets import process_set_ids_and_ranks


def total(**how):
    return hvd.allreduce(torch.tensor([2.0 ** hvd.rank()]), op=hvd.Sum, **how).item()


def static():
    def sets():
        return [hvd.ProcessSet([0]), hvd.ProcessSet(range(1, 4) if rank() else [3, 1, 2])]

    def rank():
        return hvd.rank() if hvd.is_initialized() else 0

    refused(ValueError, lambda: hvd.init(process_sets=[*sets(), hvd.ProcessSet([0])]), "same ranks")
    assert hvd.is_initialized()
    chosen = sets()
    hvd.init(process_sets=chosen)
    assert [one.process_set_id for one in chosen] == [1, 2]
    assert process_set_ids_and_ranks() == {0: [0, 1, 2, 3], 1: [0], 2: [1, 2, 3]}
    refused(ValueError, lambda: hvd.init(process_sets=[hvd.ProcessSet([0, 1])]), "called before")
    refused(ValueError, lambda: hvd.init(process_sets=[hvd.ProcessSet(range(4))]), "same ranks")
    mine = chosen[0] if hvd.rank() == 0 else chosen[1]
    assert total(process_set=mine) == (1 if hvd.rank() == 0 else 14)
    assert total() == 15
    hvd.shutdown()
    refused(ValueError, lambda: hvd.init(process_sets=[[0, 9]]), "not all among")
    hvd.shutdown()
    hvd.init(process_sets=[[2, 0]])
    assert process_set_ids_and_ranks() == {0: [0, 1, 2, 3], 1: [0, 2]}


def communicator():
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    split = comm.Split(color=comm.rank % 2, key=comm.rank)
    chosen = [hvd.ProcessSet(split), hvd.ProcessSet([0])]
    hvd.init(comm=comm, process_sets=chosen)
    assert process_set_ids_and_ranks() == {0: [0, 1, 2, 3], 1: [0, 2], 2: [1, 3], 3: [0]}
    assert hvd.global_process_set.mpi_comm is comm
    assert chosen[0].process_set_id == 1 + comm.rank % 2
    assert chosen[1].process_set_id == 3
    assert total(process_set=chosen[0]) == (5, 10)[comm.rank % 2]
    assert total() == 15
    hvd.shutdown()
    # A world of its own for each half: numbers begin at 0 in both.
    hvd.init(comm=split)
    assert (hvd.rank(), hvd.size()) == (comm.rank // 2, 2)
    assert hvd.local_size() == 2
    assert total() == 3
    assert comm.allreduce(int(total())) == 12
    hvd.shutdown()
    split.Free()
    hvd.init()
    assert total() == 15


def ranks():
    hvd.init()
    rank = hvd.rank()
    hvd.shutdown()
    from mpi4py import MPI

    for wrong in ([0, 0, 1, 2, 3], [0, 1, 2, 3, 4], [-1, 0, 1, 2, 3]):
        refused(ValueError, lambda wrong=wrong: hvd.init(comm=wrong), "are not ranks of this job")
    refused(ValueError, lambda: hvd.init(comm=[r for r in range(4) if r != rank]), "is not among")
    assert not hvd.is_initialized()
    part = [3, 0, 1] if rank != 2 else [2]
    hvd.init(comm=part)
    assert (hvd.rank(), hvd.size()) == (sorted(part).index(rank), len(part))
    assert total() == (7 if rank != 2 else 1)
    hvd.shutdown()
    MPI.COMM_WORLD.barrier()
    hvd.init(comm=list(range(4)))
    assert total() == 15


{"static": static, "communicator": communicator, "list": ranks}[sys.argv[1]]()
print("rank done")
