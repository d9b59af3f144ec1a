"""Starting the user's command: in its own process group, on its cores, in its directory, and mortal with us.

Or having the host's fork server start it (`WarmRankClient`), where that has imported what it needs. Plain
classes instead of dataclasses, whose import would cost every agent 10 ms.
"""

from __future__ import annotations

import json
import os

from ringleader.agents import process_tree, rank_identity, unix_messages
from ringleader.agents.fast_stdlib import signal, socket, suppress

TYPE_CHECKING = False  # see fast_stdlib.py
if TYPE_CHECKING:
    from typing import Any, NoReturn

NOT_FOUND, NOT_EXECUTABLE = 127, 126
"""Exit codes of a command that could not be started, as shells use them."""


class Failure:
    """Why a command could not be started."""

    def __init__(self, *, exit_code: int, reason: str) -> None:
        """``exit_code`` as a shell would give it."""
        self.exit_code = exit_code
        self.reason = reason


class WarmRank(BaseException):
    """Raised in a rank that was forked and is not to become another program: it runs its script itself.

    It unwinds to whoever has imported what the script needs; no Exception, so that nobody takes it before.
    """

    def __init__(self, *, argv: tuple[str, ...], env: dict[str, str], report: int) -> None:
        """As ``start`` was given them; ``report`` is a descriptor of the rank's own."""
        super().__init__()
        self.argv = argv
        self.env = env
        self.report = report


def start(
    *,
    argv: tuple[str, ...],
    cwd: str,
    env: dict[str, str],
    cpus: tuple[int, ...],
    streams: tuple[int, int, int],
    report: int,
    open_files: int,
    warm: bool = False,
) -> int | Failure:
    """Start a command and return its pid, once the kernel has accepted the program.

    ``cpus``: CPU numbers to be bound to; empty: not bound. ``streams``: its standard input, output and error.
    ``report``: the report pipe's write end. It gets these four descriptors and no other. ``open_files``: soft
    limit that it gets; 0: ours. ``warm``: no other program is executed, WarmRank is raised in the rank.
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
        _become(parent, tell, argv, cwd, env, cpus, streams, report, open_files, warm)
    os.close(tell)
    with os.fdopen(trouble, "rb") as pipe:
        told = pipe.read()
    if not told:
        return pid
    os.waitpid(pid, 0)
    words = json.loads(told)
    return Failure(exit_code=words["exit_code"], reason=words["reason"])


def _become(
    parent: int,
    tell: int,
    argv: tuple[str, ...],
    cwd: str,
    env: dict[str, str],
    cpus: tuple[int, ...],
    streams: tuple[int, int, int],
    report: int,
    open_files: int,
    warm: bool,
) -> NoReturn:
    """Turn the forked copy of us into the command; never returns."""
    step, code = "prepare the process", NOT_EXECUTABLE
    try:
        os.setpgid(0, 0)
        process_tree.die_with_parent(signal.SIGKILL, parent)
        _default_signals()
        step = f"enter the directory {cwd}"
        os.chdir(cwd)
        step = f"bind to the cores {','.join(map(str, cpus))}"
        if cpus:
            os.sched_setaffinity(0, cpus)
        _limit_open_files(open_files)
        step = f"run {argv[0]}"
        for number, fd in enumerate(streams):
            os.dup2(fd, number)  # makes the copy inheritable
        if warm:
            report = os.dup(report)
        os.set_inheritable(report, True)
        if warm:
            os.close(tell)
            raise WarmRank(argv=argv, env=env | {"RINGLEADER_REPORT_FD": str(report)}, report=report)
        os.execvpe(argv[0], argv, env)
    except WarmRank:
        raise
    except OSError as error:
        code = (
            NOT_FOUND if isinstance(error, FileNotFoundError) and step.startswith("run") else NOT_EXECUTABLE
        )
        _tell(tell, code, f"cannot {step}: {error.strerror}")
    except BaseException as error:
        _tell(tell, code, f"cannot {step}: {error}")
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
    for number in (
        signal.SIGTERM,
        signal.SIGINT,
        signal.SIGHUP,
        signal.SIGCHLD,
        signal.SIGPIPE,
        signal.SIGXFSZ,
    ):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def _tell(fd: int, code: int, reason: str) -> None:
    with suppress(OSError):
        os.write(fd, json.dumps({"exit_code": code, "reason": reason}).encode())


FORK_SECONDS = 20.0
"""For an answer: the server forks one rank after another, and each fork takes milliseconds."""


class WarmRankUnavailableError(Exception):
    """No warm rank can be had; the rank starts by itself."""


class WarmRankClient:
    """The connection by which one rank was forked; as long as it is open the rank may live."""

    def __init__(self, directory: str) -> None:
        """Connect. Raises WarmRankUnavailableError where nobody listens: it still imports, or has failed."""
        key = rank_identity.host_key(rank_identity.host_identity())
        self._sock: socket.socket = unix_messages.new_socket()
        self._sock.settimeout(FORK_SECONDS)
        try:
            address = unix_messages.SocketAddress(f"{directory}/{key}/{unix_messages.WARM_SOCKET_NAME}")
            try:
                self._sock.connect(address.address)
                unix_messages.check_peer(self._sock)
            finally:
                address.close()
        except OSError as error:
            self._sock.close()
            what = f"it still imports, or has ended ({error.strerror})"
            raise WarmRankUnavailableError(what) from None
        self.fd = self._sock.fileno()

    def start(self, fds: tuple[int, ...], **words: Any) -> int | Failure:
        """Have the rank forked; return its process id. Raises WarmRankUnavailableError."""
        try:
            unix_messages.send(self._sock, words, fds)
            received = unix_messages.receive(self._sock)
        except (OSError, ValueError) as error:
            raise WarmRankUnavailableError(str(error)) from None
        if received is None:
            raise WarmRankUnavailableError("the host's warm Python has ended")
        answer, _ = received
        if answer["do"] == "started":
            self._sock.setblocking(False)
            return int(answer["pid"])
        return Failure(exit_code=int(answer["exit_code"]), reason=str(answer["why"]))

    def status(self) -> int | None:
        """Return the wait status of the rank that has ended, None while it lives.

        Where the server has ended, its ranks have, too: the kernel kills them.
        """
        try:
            received = unix_messages.receive(self._sock)
        except BlockingIOError:
            return None
        except (OSError, ValueError):
            received = None
        return int(signal.SIGKILL) if received is None else int(received[0]["status"])

    def close(self) -> None:
        """Let go of the connection."""
        self._sock.close()
