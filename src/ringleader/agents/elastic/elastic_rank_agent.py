"""A rank agent of an elastic job: the loop of every rank agent, forked by the host agent or the fork server.

What differs: it is known by the number of its incarnation, no MPI started it, its host agent's end is
reported by the kernel, and a signal to end, sent by somebody else, is a notice for its host and not its end.
"""

from __future__ import annotations

import os
import time

from ringleader.agents import process_tree
from ringleader.agents.light_imports import Callable, Mapping, signal
from ringleader.agents.rank_agent_loop import (
    AGENT,
    EXIT_SECONDS,
    HOST_AGENT,
    InnerAgent,
    in_own_session,
    serve_rank,
    wake_on_signals,
)

ADOPTION_SECONDS = 5.0
"""For one that the fork server forked to become the host agent's child."""


def run(host_agent: int, environ: Callable[[], Mapping[str, str] | None], *, preloaded: bool = False) -> int:
    """Serve one rank in our own session, and leave nothing; return our exit code.

    ``host_agent``: its process id, and ours is a child of it, now or soon. ``environ``: waits for our
    environment, None where no rank is to be served. ``preloaded``: we have imported what the rank needs, so
    that it may be forked from us. Raises ForkedRank in such a rank.
    """

    def serve() -> int:
        signal.set_wakeup_fd(-1)
        until = time.monotonic() + ADOPTION_SECONDS
        while os.getppid() != host_agent and time.monotonic() < until:
            time.sleep(0.0005)
        if (given := environ()) is not None:
            wake = wake_on_signals(0)
            process_tree.die_with_parent(signal.SIGHUP, host_agent)
            process_tree.become_subreaper()
            known = {**given, "RINGLEADER_RANK_AGENT_PID": str(os.getpid())}
            number = int(given["RINGLEADER_INCARNATION"])
            serve_rank(ElasticRankAgent, number, wake, (host_agent, 0), known, preloaded=preloaded)
        return 0

    return in_own_session(serve)


class ElasticRankAgent(InnerAgent):
    """The loop of one rank's agent."""

    def stop(self, by: str, grace: float) -> None:
        """Have the rank end; from now on it takes a signal to end as one."""
        self.process.files.add_status([{"kind": "stop"}])
        super().stop(by, grace)

    def _advance(self, now: float) -> None:
        super()._advance(now)
        if self.done and self.process.orphaned and not self.launcher.pending:
            self.finished = True  # nobody need say bye: our host agent is gone, or ends

    def _orphan(self, asked: set[int]) -> None:
        host_agent = self.parents[0]
        if os.getppid() == host_agent and signal.SIGHUP not in asked:
            process_tree.send([host_agent], signal.SIGUSR1)
        else:
            super()._orphan(asked)

    def _who_ends_us(self, asked: set[int]) -> str:
        time.sleep(EXIT_SECONDS)
        return AGENT if os.getppid() == self.parents[0] else HOST_AGENT
