"""The loop of a host agent: its connection to the launcher, and all that its host has of an elastic job.

It forks rank agents (``rank_agents``), keeps a fork server from which they start warm
(``fork_server_control``), serves ranks and MPI proxies (``generation_server``), holds the commits
(``commit_memory``) and has them written to files (``checkpoint_files``). It decides nothing about the job:
orders come from the launcher. By itself it only ends everything when the launcher is gone, freezes commits
when nothing comes from the launcher's host any more, and passes on that somebody wants this host to leave.
"""

from __future__ import annotations

import os
import select
import time

from ringleader.agents import process_tree, protocol, rank_identity, unix_messages
from ringleader.agents.elastic.checkpoint_files import CheckpointFiles
from ringleader.agents.elastic.commit_memory import CommitStore
from ringleader.agents.elastic.forked_rank_agents import NOTICES, OUTER_GONE, WATCHED, RankAgents
from ringleader.agents.elastic.generation_server import GenerationService
from ringleader.agents.fork_server_control import ForkServerProcess
from ringleader.agents.job_directory import JobDirectory
from ringleader.agents.light_imports import Any, Callable, Mapping, signal, socket, suppress
from ringleader.agents.protocol import LauncherConnection

LEFT_SECONDS = 3.5
"""For rank agents to end their ranks where we end: SIGTERM, and SIGKILL 2 s later."""
FILE_SECONDS = 50.0
"""After the launcher's last word, besides `LEFT_SECONDS`: for a file of a commit that is being written. The
launcher waits a little longer (``elastic_session.FILES_SECONDS``)."""
TICK_SECONDS = 0.5


class HostAgentConfig:
    """What the launcher says at the start; see ``launch/elastic/host_agents.py``."""

    def __init__(self, words: Mapping[str, Any]) -> None:
        """Raises KeyError, TypeError or ValueError where something is missing."""
        self.control = str(words["control"])
        self.token = str(words["token"])
        self.directory = str(words["directory"])
        self.host = str(words["host"])
        self.number = int(words.get("number", 0))
        """Among the job's agents on this machine: each name of it that the job counts as a host has one."""
        self.freeze_after = float(words["freeze_after"])
        self.lost_after = float(words["lost_after"])
        self.commit_limit = str(words.get("commit_limit", ""))
        """RINGLEADER_COMMIT_LIMIT as the launcher has it; empty: this host's own counts."""


class HostAgent:
    """One host of an elastic job."""

    def __init__(
        self,
        config: HostAgentConfig,
        launcher: LauncherConnection,
        directory: JobDirectory,
        environ: Mapping[str, str],
    ) -> None:
        """Serve ranks and proxies from now on, and say to the launcher that we are here."""
        self.config, self.launcher, self._directory = config, launcher, directory
        self.commits = CommitStore()
        socket_path = unix_messages.agent_socket(directory.path, config.number)
        self._wake = process_tree.wake_on_signals(WATCHED)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, WATCHED)
        self._finished = False
        self._end_at: float | None = None
        """When whatever has not ended by itself is killed."""
        self.service = GenerationService(socket_path, self._event, self.commits)
        self.rank_agents = RankAgents(
            {
                **environ,
                "RINGLEADER_CONTROL": config.control,
                "RINGLEADER_TOKEN": config.token,
                "RINGLEADER_JOB_DIR": config.directory,
                "RINGLEADER_HOST_AGENT": socket_path,
            },
            launcher.say,
        )
        self.fork_server = ForkServerProcess(environ, launcher.say, self._forked, directory.path)
        self.files = CheckpointFiles(self.commits, launcher.say)
        launcher.keep_alive(config.lost_after, idle=1)
        launcher.say(
            do="host_hello",
            host=config.host,
            hostname=socket.gethostname(),
            identity=rank_identity.host_identity(),
            pid=os.getpid(),
            cpus=sorted(os.sched_getaffinity(0)),
            socket=socket_path,
        )

    # --- the loop -----------------------------------------------------------------------------------------

    def serve(self) -> None:
        """Serve everybody until the launcher says bye or is gone, and everything has ended."""
        while not self._finished:
            self._wait()
            self._tick(time.monotonic())
        self.fork_server.stop()
        self.service.close()
        self.commits.close()

    def _wait(self) -> None:
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        if self.launcher.open:
            poll.register(self.launcher.fd, select.POLLIN | (select.POLLOUT if self.launcher.pending else 0))
        server = self.fork_server.interests()
        files = self.files.interests()
        for fd, events in (*server, *files, *self.service.interests()):
            poll.register(fd, events)
        of_server = {fd for fd, _ in server}
        for fd, events in poll.poll((0.05 if self._end_at is not None else TICK_SECONDS) * 1000):
            if fd == self._wake:
                self._signals()
            elif fd == self.launcher.fd:
                self._control(events)
            elif fd in of_server:
                self.fork_server.serve(fd)
            elif files and fd == files[0][0]:
                self.files.serve()
            else:
                self.service.serve(fd, events)

    def _tick(self, now: float) -> None:
        """Do what is due."""
        if self.launcher.open:
            self._fence(self.launcher.silence())
        elif self._end_at is None:
            self._end(now)
        self.fork_server.tick(now)
        self.files.tick(now)
        if not self.fork_server.forking:
            self.rank_agents.end_orphans((self.fork_server.pid, self.fork_server.standby, self.files.pid))
        if self._end_at is not None:
            self._advance_end(now, self._end_at)

    def _advance_end(self, now: float, end_at: float) -> None:
        """Kill rank agents that are late, wait for a file while the launcher does, then finish."""
        late = self.rank_agents.pids
        writing = self.files.writing and self.launcher.open
        if late and now > end_at:
            process_tree.send(
                [pid for one in late for pid in (one, *process_tree.below(one))], signal.SIGKILL
            )
        is_late = now > end_at + FILE_SECONDS
        if writing and is_late:
            self.files.give_up()
        self._finished = not (late or writing) or is_late

    def _fence(self, silence: float) -> None:
        """Freeze commits, and later end everything, where nothing comes from the launcher's host."""
        frozen = silence > self.config.freeze_after
        if frozen != self.commits.frozen:
            self.commits.freeze(frozen)
            self.launcher.say(do="commits_frozen", frozen=frozen)
        if silence > self.config.lost_after:
            self.launcher.close()

    def _end(self, now: float) -> None:
        """End whatever is left: rank agents end their ranks."""
        if self._end_at is None:
            self._end_at = now + LEFT_SECONDS
            self.fork_server.stop()
            self.files.stop()
            process_tree.send(self.rank_agents.pids, signal.SIGHUP)

    # --- what happens -------------------------------------------------------------------------------------

    def _signals(self) -> None:
        numbers = b""
        with suppress(BlockingIOError):
            numbers = os.read(self._wake, 4096)
        for number in NOTICES:
            if number in numbers:
                self.launcher.say(do="notice", why=NOTICES[number])
                self.service.notice()
        if OUTER_GONE in numbers:
            self.launcher.close()  # the host is lost from now on, not when the last rank has ended
            self._end(time.monotonic())
        if signal.SIGCHLD in numbers:
            self._collect()

    def _collect(self) -> None:
        """Reap what has ended: a rank agent, the fork server, a writer of files, or somebody's orphan."""
        for pid, status in process_tree.reap():
            if pid == self.fork_server.pid:
                self.fork_server.ended(status)
            elif pid == self.files.pid:
                self.files.ended(status)
            else:
                self.fork_server.standby_ended(pid)
                self.rank_agents.ended(pid, status)

    def _control(self, events: int) -> None:
        if events & select.POLLOUT:
            self.launcher.flush()
        if events & (select.POLLIN | select.POLLHUP | select.POLLERR):
            for kind, payload in self.launcher.frames():
                if kind == protocol.MESSAGE:
                    words = protocol.read_message(payload)
                    act = ORDERS.get(str(words.get("do")))
                    if act is not None:
                        act(self, words)

    def _event(self, words: dict[str, Any]) -> None:
        """Pass on what ranks and proxies say; of some of it we take note."""
        self.launcher.say(**words)
        if words["do"] == "committed":
            self.files.committed(int(words["number"]))
        elif words["do"] == "proxy_ready":
            mapped = process_tree.mapped_files(int(words["pid"]))
            self._directory.remember(process_tree.segments(mapped))

    # --- orders -------------------------------------------------------------------------------------------

    def _spawn(self, words: dict[str, Any]) -> None:
        incarnation = int(words["incarnation"])
        environ = self.rank_agents.environment(incarnation, words.get("env", {}))
        warm = words.get("warm", True) and self.fork_server.ready
        (self.fork_server if warm else self.rank_agents).fork(incarnation, environ)

    def _forked(self, answer: dict[str, Any]) -> None:
        """Take what the fork server has forked; what it has not is forked from here, cold."""
        if "pid" in answer:
            self.rank_agents.add(int(answer["incarnation"]), int(answer["pid"]), warm=True)
        else:
            self.rank_agents.fork(int(answer["incarnation"]), answer["environ"])

    def _begin(self, words: dict[str, Any]) -> None:
        """Begin a generation; a commit newer than the one that it continues from counts no more."""
        self.commits.keep_up_to(int(words.get("restore", 0)))
        self.service.begin(words)

    def _bye(self, words: dict[str, Any]) -> None:
        if words.get("unfinished"):
            self.files.finish()
        self._end(time.monotonic())


ORDERS: dict[str, Callable[[HostAgent, dict[str, Any]], Any]] = {
    "prepare": lambda agent, words: agent.fork_server.prepare(words),
    "spawn": HostAgent._spawn,
    "kill": lambda agent, words: agent.rank_agents.kill_rank(int(words["incarnation"])),
    "leave": lambda agent, words: agent.service.leave(int(words["incarnation"]), str(words["why"])),
    "generation": HostAgent._begin,
    "end_generation": lambda agent, words: agent.service.end(words),
    "end_world": lambda agent, words: agent.service.end_world(int(words["world"])),
    "notify": lambda agent, words: agent.service.notify(int(words["counter"]), int(words["result"])),
    "preparing": lambda agent, words: agent.service.set_preparing(bool(words["preparing"])),
    "checkpoint": lambda agent, words: agent.files.configure(words),
    "load_checkpoint": lambda agent, words: agent.files.load(words),
    "bye": HostAgent._bye,
}
"""What the launcher orders → what the agent does."""
