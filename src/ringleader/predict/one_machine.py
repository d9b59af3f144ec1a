"""Hosts that one machine plays (a lab): they share its cores and its memory. Pure.

What an exchange costs the processor besides the line (sums, copies, the network's protocol, looking for
messages) is told by an all-reduce of as many ranks over links without a limit, where nothing but the cores
limits it. No exchange is shorter, and while no core is free computing gets what it leaves of them: a step of
ranks that share all cores takes at least what computing and exchanging take of the cores together.
"""

from __future__ import annotations

from dataclasses import replace

from ringleader.predict.measured_curve import MeasuredAllReduce
from ringleader.predict.step_model import Setup


def memory_rate(within: MeasuredAllReduce) -> float:
    """Return the bytes per second that ranks of one host read and write together while they reduce.

    An all-reduce of S bytes in memory that g ranks share reads g·S and writes g·S.
    """
    return 2 * within.per_host * within.link.rate


def on_one_machine(
    setup: Setup, ranks: int, *, within: MeasuredAllReduce, unlimited: MeasuredAllReduce, cores: int
) -> Setup:
    """Return the setup of so many ranks on hosts that share one machine.

    ``within``: an all-reduce of the ranks of one host, nobody else at work. ``unlimited``: one of so many
    ranks, over links without a limit. Both in memory that the engine shares, as gradients are. ``cores``: of
    the machine; where there are not fewer ranks, no core is left for the exchange.
    """
    hosts = max(1, ranks // setup.per_host)
    rate = memory_rate(within)
    link = replace(setup.network.within, bandwidth=rate / hosts, efficiency=1.0)
    return replace(
        setup,
        network=replace(setup.network, within=link),
        copying=2 * ranks / rate,  # all ranks read and write their gradients in the same time
        processor=unlimited,
        contention=1.0 if ranks >= cores else 0.0,
    )
