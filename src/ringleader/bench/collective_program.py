"""What each rank of a collective test runs: argv[1] is its ``CollectivePlan`` as JSON, and it answers:

place      {"hostname": …, "pid": …, "device": …, "cpu": …, "machine": …, "python": …, "torch": …}
refused    {"what": "…", "hint": "…"}           nothing can be measured, why, and what helps
note       {"implementation": "mpi", "what": "…"}     rank 0: what an implementation cannot do
result     {"size": …, "count": …, "series": {"mpi": {"iterations": …, "out_of_place": {…}, …}}, "wrong": […]}
           rank 0, after each size; the times are means over all ranks, as with nccl-tests' ``-a 1``
stuck      {"step": …, "what": "…", "seconds": …}     see ``operation_deadline``
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from ringleader.agents.training_progress import context_of
from ringleader.bench.collective_implementations.implementation import (
    Implementation,
)
from ringleader.bench.collective_implementations.memory import (
    Memory,
    gpu_memory,
    host_memory,
    registered_memory,
)
from ringleader.bench.collective_plan import DTYPES, CollectivePlan, cases
from ringleader.bench.collective_turns import CollectiveTurns
from ringleader.bench.operation_deadline import EXIT_CODE, OperationDeadline
from ringleader.fabric.byte_size import byte_size
from ringleader.fabric.facts import from_document
from ringleader.launch.rank_answer import send

OPEN_SECONDS = 120.0
"""Until all ranks have imported their frameworks and met."""


def makers_of(plan: CollectivePlan) -> dict[str, Any]:
    """Return what each implementation is made by; the engine comes first, as it starts MPI."""
    from ringleader.bench.collective_implementations.plain_mpi import PlainMpi
    from ringleader.bench.collective_implementations.torch_distributed import TorchDistributed

    largest = max(plan.sizes)
    seconds = plan.deadline(largest, plan.iterations)
    return {
        "mpi": PlainMpi,
        "gloo": lambda: TorchDistributed("gloo", seconds=seconds),
        "nccl": lambda: TorchDistributed("nccl", seconds=seconds),
    }


def engine_of(plan: CollectivePlan) -> Implementation:
    """Return our engine with PyTorch's tensors, or with NumPy's arrays."""
    from ringleader.bench.collective_implementations.engine import NumpyEngine, TorchEngine

    if plan.framework == "numpy":
        return NumpyEngine()
    try:
        import torch  # noqa: F401
    except ImportError:
        if plan.framework == "torch" or plan.memory != "host":
            raise
        return NumpyEngine()
    return TorchEngine()


def take_gpu(local_rank: int) -> str:
    """Make this rank's GPU the current one, and return its name. Raises RuntimeError where there is none."""
    import torch

    if not torch.cuda.is_available():
        raise RuntimeError(f"PyTorch {torch.__version__} sees no GPU")
    torch.cuda.set_device(local_rank % torch.cuda.device_count())
    return str(torch.cuda.get_device_name())


def memory_for(plan: CollectivePlan, ranks: int) -> tuple[Memory, Memory]:
    """Return memory to send from and to receive into."""
    nbytes = max((size for size, _count in cases(plan, ranks)), default=DTYPES[plan.dtype][1])
    if plan.memory == "cuda":
        return gpu_memory(nbytes, plan.dtype), gpu_memory(nbytes, plan.dtype)
    if plan.memory == "registered":
        return host_memory(nbytes), registered_memory(nbytes, plan.dtype)
    return host_memory(nbytes), host_memory(nbytes)


def engine_and_device(plan: CollectivePlan) -> tuple[Implementation, str]:
    """Return our engine and the GPU's name; where there cannot be one, say why and end this rank."""
    device = ""
    try:
        if plan.memory == "cuda":
            device = take_gpu(int(os.environ.get("LOCAL_RANK", "0")))
        return engine_of(plan), device
    except (ImportError, RuntimeError) as error:
        hint = (
            "leave out --framework" if plan.memory == "host" else "take hosts that have it, or --memory host"
        )
        send("refused", {"what": str(error), "hint": hint})
        sys.exit(EXIT_CODE)


def arrays(plan: CollectivePlan, ranks: int) -> tuple[Memory, Memory]:
    """Return memory to send from and to receive into; where there is no room, say so and end this rank."""
    try:
        return memory_for(plan, ranks)
    except (MemoryError, RuntimeError) as error:
        what = f"no memory for two arrays of {byte_size(max(plan.sizes))}: {error}"
        send("refused", {"what": what, "hint": "ask for a smaller --maxbytes"})
        os._exit(EXIT_CODE)  # MPI's end would wait for ranks that have theirs


def others(plan: CollectivePlan, control: Any, deadline: OperationDeadline) -> dict[str, Implementation]:
    """Return the other implementations that all ranks can start; rank 0 tells of the rest."""
    found: dict[str, Implementation] = {}
    makers = makers_of(plan)
    for name in plan.implementations[1:]:
        with deadline.within(OPEN_SECONDS, f"the start of {name}"):
            why = ""
            try:
                found[name] = makers[name]()
            except (ImportError, RuntimeError, ValueError) as error:
                why = (str(error).strip().splitlines() or [type(error).__name__])[0]
            why = next((one for one in control.allgather(why) if one), "")
        if why:
            found.pop(name, None)
            if control.rank == 0:
                send("note", {"implementation": name, "what": why})
    return found


def main() -> None:
    """Measure what the plan says."""
    plan = from_document(CollectivePlan, json.loads(sys.argv[1]))
    deadline = OperationDeadline()
    with deadline.within(OPEN_SECONDS, "the start of MPI"):
        engine, device = engine_and_device(plan)
    from mpi4py import MPI

    context = {name: value for name, value in context_of().items() if name != "kind"}
    send("place", {**context, "pid": os.getpid(), "device": device})
    control = MPI.COMM_WORLD.Dup()
    implementations = {"ringleader": engine, **others(plan, control, deadline)}
    with deadline.within(OPEN_SECONDS, "making the arrays"):
        memory = arrays(plan, control.size)
    CollectiveTurns(plan, control, implementations, memory, deadline).run()
    with deadline.within(OPEN_SECONDS, "the end of MPI"):
        control.Barrier()
        for implementation in reversed(implementations.values()):
            implementation.close()


if __name__ == "__main__":
    main()
