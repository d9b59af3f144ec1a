"""Starting a command: in its own process group, on its cores, in its directory, and ending with us.

Ranks and fork servers are started so. A rank may also be forked from a process that has imported what it
needs (`fork_server`): then it runs its script itself (`forked_script`).
"""

from __future__ import annotations

import json
import os

from ringleader.agents import process_tree
from ringleader.agents.light_imports import Any, Mapping, NoReturn, Sequence, signal, suppress

NOT_FOUND, NOT_EXECUTABLE = 127, 126
"""Exit codes of a command that could not be started, as shells use them."""


class NotStartedError(Exception):
    """A command could not be started: why, and with which exit code a shell would say so."""

    def __init__(self, exit_code: int, reason: str) -> None:
        """Keep both."""
        super().__init__(reason)
        self.exit_code, self.reason = exit_code, reason


class ForkedRank(BaseException):
    """Raised in a rank that was forked and is not to become another program: it runs its script itself.

    It unwinds to whoever has imported what the script needs; no Exception, so that nobody takes it before.
    """

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], report: int) -> None:
        """``argv`` and ``env`` of its command; ``report``: its report pipe, its own descriptor."""
        super().__init__()
        self.argv, self.env, self.report = argv, env, report
        self.kept: set[int] = set()
        """Descriptors that imported libraries opened."""


def start(
    command: Mapping[str, Any], fds: Sequence[int], *, runs_script: bool = False, waits: bool = True
) -> int:
    """Start a command and return its process id, once the kernel has accepted the program.

    ``command``: ``argv``, ``cwd``, ``env``, ``cpus`` (their numbers, to be bound to; empty: it is not bound)
    and ``open_files`` (soft limit that it gets; 0: ours). ``fds``: its standard input, output and error, and
    one that it gets as it is. ``runs_script``: no other program is executed, ForkedRank is raised there.
    ``waits``: False for who must not wait for a file system: what goes wrong is then on standard error.
    Raises NotStartedError, and OSError where there can be no process.
    """
    trouble, tell = os.pipe()
    parent = os.getpid()
    try:
        pid = os.fork()
    except OSError:
        os.close(trouble)
        os.close(tell)
        raise
    if pid == 0:
        _become(command, fds, parent, tell if waits else None, runs_script)
    os.close(tell)
    if not waits:
        os.close(trouble)
        return pid
    with os.fdopen(trouble, "rb") as pipe:
        told = pipe.read()
    if told:
        os.waitpid(pid, 0)
        raise NotStartedError(**json.loads(told))
    return pid


def _become(
    command: Mapping[str, Any], fds: Sequence[int], parent: int, tell: int | None, runs_script: bool
) -> NoReturn:
    """Turn the forked copy of us into the command; never returns."""
    step, code, argv, cpus = "prepare the process", NOT_EXECUTABLE, command["argv"], command["cpus"]
    try:
        os.setpgid(0, 0)
        process_tree.die_with_parent(signal.SIGKILL, parent)
        _default_signals()
        step = f"enter the directory {command['cwd']}"
        os.chdir(command["cwd"])
        step = f"bind to the cores {','.join(map(str, cpus))}"
        if cpus:
            os.sched_setaffinity(0, cpus)
        _limit_open_files(command["open_files"])
        step = f"run {argv[0]}"
        for number, fd in enumerate(fds[:3]):
            os.dup2(fd, number)  # makes the copy inheritable
        if runs_script:
            report = os.dup(fds[3])
            os.set_inheritable(report, True)
            if tell is not None:
                os.close(tell)
            raise ForkedRank(argv, command["env"] | {"RINGLEADER_REPORT_FD": str(report)}, report)
        os.set_inheritable(fds[3], True)
        os.execvpe(argv[0], argv, command["env"])
    except ForkedRank:
        raise
    except BaseException as error:
        if isinstance(error, FileNotFoundError) and step.startswith("run"):
            code = NOT_FOUND
        reason = f"cannot {step}: {error.strerror if isinstance(error, OSError) else error}"
        with suppress(OSError):
            if tell is None:
                os.write(fds[2], f"{reason}\n".encode())
            else:
                os.write(tell, json.dumps({"exit_code": code, "reason": reason}).encode())
    os._exit(code)


def _limit_open_files(soft: int) -> None:
    """Give the command the limit that its user had before the launcher made room for itself."""
    if soft > 0:
        import resource

        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _default_signals() -> None:
    """Give the command the signal dispositions of a fresh process, not those of a Python program."""
    signal.set_wakeup_fd(-1)
    ended_by = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
    for number in (*ended_by, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
