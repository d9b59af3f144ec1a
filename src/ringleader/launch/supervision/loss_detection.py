"""What a job stands on, and may lose: mpirun and its supervisor, daemons, agents, hosts, ssh connections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringleader.launch.exit_reason import Cause, Why
from ringleader.launch.lost_components import RACE, JobHosts, Loss, Lost, RootCause, root_cause
from ringleader.launch.mpirun.mpirun_output import daemons_lost_in
from ringleader.launch.supervision.rank_state import RankState
from ringleader.render.hostfile import bare_name

if TYPE_CHECKING:
    from ringleader.launch.supervision.supervisor import Supervisor


class LossDetection:
    """Notes what ended while the job needed it, and stops the job; at the end it knows the root cause."""

    def __init__(self, session: Supervisor) -> None:
        """Begin with nothing lost."""
        self.session = session
        self.losses: list[Loss] = []
        self._mpirun_noted = False

    def lose(self, what: Lost, state: RankState | None = None, *, number: int = 0) -> None:
        """Note the end of something of a rank's (``state``) or of mpirun; ``number``: the signal.

        What ends once we let go of it is lost by nobody.
        """
        session = self.session
        if session.said_bye is not None:
            return
        now = session.clock()
        host, rank, text = "", None, "mpirun ended"
        if state is not None:
            host, rank, text = state.host.host.name, state.rank, f"{state.name}: the MPI ended it"
        self.losses.append(Loss(what=what, at=now, host=host, rank=rank, signal=number))
        session.stop_for(Cause(why=Why.MPI if what is Lost.MPI else Why.LOST, at=now, text=text))

    def mpi_ended(self, at: float) -> None:
        """Note that the MPI ended by itself, without a word on why."""
        self.losses.append(Loss(what=Lost.MPI, at=at))

    def watch(self, now: float) -> None:
        """See whether mpirun, its supervisor or an ssh connection ended while the job needed them."""
        if self.session.said_bye is not None:
            return
        mpirun = self.session.mpirun
        if mpirun.exit_code is not None and not self._mpirun_noted:
            self._mpirun_noted = True
            if mpirun.supervisor_lost:
                self.lose(Lost.SUPERVISOR, number=-mpirun.exit_code)
            elif mpirun.exit_code < 0 and not mpirun.supervisor_signalled:
                self.lose(Lost.MPIRUN, number=-mpirun.exit_code)
        signalled = mpirun.supervisor_signalled
        if signalled is not None and now > signalled - self.session.began + RACE:
            mpirun.supervisor_signalled = None
            self.lose(Lost.SUPERVISOR)
        ssh = self.session.prepared.ssh
        for host in ssh.lost() if ssh is not None else ():
            self.losses.append(Loss(what=Lost.SESSION, at=now, host=host))

    def root_cause(self) -> RootCause | None:
        """Return what the job was ended by, where that was no rank, no signal and no time-out."""
        states = self.session.ranks.values()
        hosts = {state.host.host.name: state.host for state in states}
        around = JobHosts(
            ranks_of={
                name: [state.rank for state in states if state.host.host.name == name] for name in hosts
            },
            remote=frozenset(name for name, host in hosts.items() if not host.is_local),
            lost_after=self.session.job.lost_after,
            mpi=self.session.prepared.mpi.name,
        )
        return root_cause([*self.losses, *self._lost_daemons()], around)

    def _lost_daemons(self) -> list[Loss]:
        """Return the daemons that mpirun says to have lost: one that is told to end does not break off."""
        nodes = set(daemons_lost_in(self.session.mpirun.output()))
        at = min(
            (loss.at for loss in self.losses), default=self.session.cause.at if self.session.cause else 0.0
        )
        lost = [state.host for state in self.session.ranks.values()]
        lost = [host for host in lost if nodes & {host.hostname, bare_name(host.host.name)}]
        return [Loss(what=Lost.DAEMON, at=at, host=host.host.name) for host in lost]
