"""``ringleader bench``: between pairs of ranks, of collectives, of training; one module for each."""

from __future__ import annotations

from ringleader.cli.lazy_group import LazyGroup, Table

_COLLECTIVES = "ringleader.cli.bench.collectives"
COMMANDS: Table = {
    "p2p": ("ringleader.cli.bench.p2p", "Latency and bandwidth between pairs of hosts or ranks."),
    "allreduce": (f"{_COLLECTIVES}:allreduce", "Time and bandwidth of allreduce, by size."),
    "allgather": (f"{_COLLECTIVES}:allgather", "Time and bandwidth of allgather."),
    "reducescatter": (f"{_COLLECTIVES}:reducescatter", "Time and bandwidth of reducescatter."),
    "broadcast": (f"{_COLLECTIVES}:broadcast", "Time and bandwidth of broadcast."),
    "alltoall": (f"{_COLLECTIVES}:alltoall", "Time and bandwidth of alltoall."),
    "sendrecv": (f"{_COLLECTIVES}:sendrecv", "Time and bandwidth of a ring of sends and receives."),
    "train": ("ringleader.cli.bench.train", "Training steps: what coupling costs, and where a step goes."),
}


command = LazyGroup(
    "bench",
    table=COMMANDS,
    help="Measure between ranks. Results are kept in runs/NAME, for `ringleader report` and `predict`.",
)
