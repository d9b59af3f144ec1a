"""The rank agents of one host of an elastic job, as its host agent sees them: forked, reaped, their orphans.

Each is a direct child of the host agent, also where the fork server forked it, so that its end is seen here
and it is notified of ours. It connects to the launcher by itself (``elastic_rank_agent``).
"""

from __future__ import annotations

import os

from ringleader.agents import process_tree
from ringleader.agents.light_imports import Callable, Mapping, Sequence, signal
from ringleader.agents.process_tree import close_all_but

WATCHED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGCHLD)
"""Signals that both processes of the host agent wait for; blocked where a handler must not run yet."""
OUTER_GONE = signal.SIGHUP
"""What the kernel sends the inner process when the outer one has ended, and rank agents when we have."""
NOTICES = {int(signal.SIGTERM): "SIGTERM", int(signal.SIGUSR1): "SIGUSR1", int(signal.SIGINT): "SIGINT"}
"""Signals by which somebody says that this host is about to leave."""


class RankAgents:
    """Those that live, by process id."""

    def __init__(self, environ: Mapping[str, str], say: Callable[..., None]) -> None:
        """``environ``: of every rank agent, before what is said of one. ``say``: tells the launcher."""
        self._environ = dict(environ) | {"RINGLEADER_HOST_AGENT_PID": str(os.getpid())}
        self._say = say
        self._incarnations: dict[int, int] = {}
        self._look_for_orphans = False
        self._unknown: dict[int, int] = {}
        """Children that ended before anybody said what they were, by process id: the wait status."""

    @property
    def pids(self) -> list[int]:
        """Process ids of those that live."""
        return list(self._incarnations)

    def environment(self, incarnation: int, env: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of one."""
        return (
            self._environ
            | {name: str(value) for name, value in env.items()}
            | {"RINGLEADER_INCARNATION": str(incarnation)}
        )

    def fork(self, incarnation: int, environ: Mapping[str, str]) -> None:
        """Fork one from this process; its rank starts by exec. ``environ``: all of its environment."""
        ours = os.getpid()
        signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
        try:
            pid = os.fork()
            if pid == 0:
                from ringleader.agents.elastic import elastic_rank_agent

                close_all_but(())
                os._exit(elastic_rank_agent.run(ours, lambda: environ))
        except OSError as error:
            self._say(do="not_spawned", incarnation=incarnation, why=f"cannot fork: {error.strerror}")
            return
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, WATCHED)
        self.add(incarnation, pid, warm=False)

    def add(self, incarnation: int, pid: int, *, warm: bool) -> None:
        """Take note of one that was forked."""
        self._incarnations[pid] = incarnation
        self._say(do="spawned", incarnation=incarnation, pid=pid, warm=warm)
        if (status := self._unknown.pop(pid, None)) is not None:
            self.ended(pid, status)

    def kill_rank(self, incarnation: int) -> None:
        """SIGKILL to everything below a rank agent, which tells how its rank ended."""
        table = process_tree.parents()
        for pid, number in self._incarnations.items():
            if number == incarnation:
                process_tree.send(process_tree.below(pid, table), signal.SIGKILL)

    def ended(self, pid: int, status: int) -> None:
        """Take the end of a child, and report a rank agent's."""
        self._look_for_orphans = True  # whoever it leaves behind is our child now
        incarnation = self._incarnations.pop(pid, None)
        if incarnation is None:
            self._unknown[pid] = status
        else:
            code = os.waitstatus_to_exitcode(status)
            self._say(
                do="rank_agent_ended",
                incarnation=incarnation,
                exit_code=code if code >= 0 else None,
                signal=-code if code < 0 else None,
            )

    def end_orphans(self, spared: Sequence[int]) -> None:
        """Kill children that are no rank agents: what a killed one, or its rank, has left behind.

        ``spared``: other children of ours. Not while the fork server forks: what it forks is not known yet.
        """
        self._unknown.clear()
        if not self._look_for_orphans:
            return
        self._look_for_orphans = False
        known = {*self._incarnations, *spared}
        table = process_tree.parents()
        for pid, parent in table.items():
            if parent == os.getpid() and pid not in known:
                process_tree.send([pid, *process_tree.below(pid, table)], signal.SIGKILL)
