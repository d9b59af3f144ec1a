"""``ringleader bench``: between pairs of ranks, of collectives, of training; one module for each."""

from __future__ import annotations

from ringleader.cli.lazy_group import LazyGroup, Table

COMMANDS: Table = {
    "p2p": ("ringleader.cli.bench.p2p", "Latency and bandwidth between pairs of hosts or ranks."),
    "train": ("ringleader.cli.bench.train", "Training steps: what coupling costs, and where a step goes."),
}


command = LazyGroup(
    "bench",
    table=COMMANDS,
    help="Measure between ranks. Results are kept in runs/NAME, for `ringleader report` and `predict`.",
)
