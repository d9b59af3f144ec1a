"""The fork server as its host agent sees it: started, asked to fork, started again where it was killed.

And as a rank agent sees it that an MPI started, and whose rank is to be forked (`ForkServerClient`).

Between the two a socket that keeps the bounds of messages (``unix_messages``). The agent writes ``import
{modules}``, then ``fork {incarnation, environ}`` and ``standby {}``. The fork server writes ``ready {modules,
seconds, versions}`` or ``failed {why, module}``, then ``forked {incarnation, pid}`` or ``not_forked
{incarnation, why}``, without ``incarnation`` of a rank agent that stands by: it was forked ahead of time, and
serves the next rank. One whose ``import`` has a ``socket`` serves rank agents there instead.
"""

from __future__ import annotations

import os
import select
import time

from ringleader.agents import process_tree, rank_identity, start_command, unix_messages
from ringleader.agents.light_imports import Any, Callable, Mapping, signal, socket, suppress

PREPARE_SECONDS = 300.0
"""For all imports of the preload; frameworks on a slow file system take a minute."""
RESTARTS = 3
"""Times that it is started again before it has once been ready; one that serves ranks (``--warm``) in all."""
KEPT_WORDS = 8 * 1024
"""Bytes of what it prints that are kept, from the end."""
STANDBY_SECONDS = 0.3
"""From what was forked last to the fork of a rank agent that stands by: until then ranks start."""
FORK_SECONDS = 20.0
"""For an answer of the fork server: it forks one rank after another, and each fork takes milliseconds."""
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH100, PTH120
PROGRAM = """\
import sys
if sys.path[:1] == [""]:
    del sys.path[0]
added = [entry for entry in ({root!r},) if entry not in sys.path]
sys.path += added
from ringleader.agents.fork_server import serve
from ringleader.agents.forked_script import run
run(serve({fd}), added)
"""
"""What its interpreter runs. The first entry of ``sys.path`` is the script's to choose."""


class ForkServerProcess:
    """At most one fork server at a time."""

    def __init__(
        self,
        environ: Mapping[str, str],
        say: Callable[..., None],
        forked: Callable[[dict[str, Any]], None],
        directory: str,
    ) -> None:
        """There is none until ``prepare``. ``environ``: the host agent's own. ``say``: tells the launcher.

        ``forked`` hears of each rank agent that was forked, as ``{incarnation, pid}``, or is to be forked
        without it, as ``{incarnation, environ}``. ``directory``: the host's part of the job's, for the socket
        of one that serves rank agents.
        """
        self._environ = dict(environ)
        self._say = say
        self._tell_forked, self._directory = forked, directory
        self._words: Mapping[str, Any] = {}
        self._sock: socket.socket | None = None
        self._output = -1
        self._printed = b""
        self._failures = 0
        self._give_up_at: float | None = None
        self._why = ""
        self._lacks = ""
        """The module that could not be imported."""
        self._forking: dict[int, dict[str, str]] = {}
        self._unsent: list[int] = []
        """Those of them for which its socket had no room yet."""
        self._standby_at = float("inf")
        """When it is to fork a rank agent that stands by."""
        self._standby_asked = False
        self.pid = 0
        self.standby = 0
        """The process id of the rank agent that stands by, 0 for none."""
        self.ready = False
        """It has imported everything and can fork."""

    @property
    def forking(self) -> bool:
        """Whether an answer is awaited: there may be a child of ours that nobody knows yet."""
        return bool(self._forking) or self._standby_asked

    # --- start and end ------------------------------------------------------------------------------------

    def prepare(self, words: Mapping[str, Any]) -> None:
        """Start one that imports what the launcher says: ``python``, ``preload``, ``env``, ``cwd``.

        ``serves_ranks``: rank agents that an MPI started ask it for ranks (``--warm``), and we ask for none.
        The one that was there ends; ranks that were forked from it live on.
        """
        self.stop()
        self._words, self._failures = words, 0
        self._start()

    def stop(self) -> None:
        """End it, if there is one; what it was asked to fork is forgotten."""
        self._words = {}
        if self.pid:
            process_tree.send([self.pid], signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(self.pid, 0)
        self._close()
        self._forking, self._unsent = {}, []

    def _start(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        output, output_there = os.pipe()
        stdin, nobody = os.pipe()  # a pipe that is at its end, as the objects of Python ask what it is
        os.close(nobody)
        command = {
            "argv": (self._words["python"], "-c", PROGRAM.format(root=ROOT, fd=theirs.fileno())),
            "cwd": self._words["cwd"],
            "env": {**self._environ, **self._words.get("env", {})},
            "cpus": (),
            "open_files": 0,
        }
        self._sock, self._output = ours, output
        try:
            fds = (stdin, output_there, output_there, theirs.fileno())
            self.pid = start_command.start(command, fds, waits=False)
        except OSError as error:
            self._close()
            self._say(do="not_prepared", why=f"cannot fork: {error.strerror}")
            return
        finally:
            for fd in (stdin, output_there):
                os.close(fd)
            theirs.close()
        ours.setblocking(False)
        os.set_blocking(output, False)
        self._printed, self._why, self._lacks = b"", "", ""
        self._give_up_at = time.monotonic() + PREPARE_SECONDS
        with suppress(OSError):  # one that has ended already is reaped, and says why
            order = {"do": "import", "modules": list(self._words.get("preload", ()))}
            if self._words.get("serves_ranks"):
                order["socket"] = f"{self._directory}/{unix_messages.RANKS_SOCKET_NAME}"
            unix_messages.send(ours, order)

    def _close(self) -> None:
        if self._sock is not None:
            self._sock.close()
            self._sock = None
        if self._output >= 0:
            os.close(self._output)
            self._output = -1
        self.pid, self.ready, self._give_up_at = 0, False, None
        self._standby_at, self._standby_asked = float("inf"), False  # one that stands by ends with it

    def ended(self, status: int) -> None:
        """Take its end: say so, start it again, and have what it was to fork forked without it."""
        self._receive()
        self._print()
        was_ready = self.ready
        self._close()
        left, self._forking, self._unsent = self._forking, {}, []
        for number, environ in left.items():
            self._tell_forked({"incarnation": number, "environ": environ})
        serves_ranks = bool(self._words.get("serves_ranks"))
        self._failures = 0 if was_ready and not serves_ranks else self._failures + 1
        again = bool(self._words) and not self._why and self._failures <= RESTARTS
        if self._words and not (again and serves_ranks):
            code = os.waitstatus_to_exitcode(status)
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            last = "" if was_ready else self._printed.decode(errors="replace").strip().rpartition("\n")[2]
            why = f"the fork server ended with {how}" + (f": {last.strip()}" if last else "")
            self._say(do="not_prepared", why=self._why or why, lacks=self._lacks)
        if again:
            self._start()

    def tick(self, now: float) -> None:
        """Give up one that imports for ever; have a rank agent forked that stands by."""
        if self._give_up_at is not None and now > self._give_up_at:
            self._give_up_at = None
            self._why = (
                f"importing {', '.join(self._words['preload'])} took longer than {PREPARE_SECONDS:g} s"
            )
            process_tree.send([self.pid], signal.SIGKILL)
        if now > self._standby_at and not self.forking and not self.standby and self._sock is not None:
            self._standby_at = float("inf")
            with suppress(OSError):
                unix_messages.send(self._sock, {"do": "standby"})
                self._standby_asked = True

    # --- messages -----------------------------------------------------------------------------------------

    def interests(self) -> list[tuple[int, int]]:
        """Return what to poll for."""
        wanted = [(self._output, select.POLLIN)] if self._output >= 0 else []
        if self._sock is not None:
            wanted.append((self._sock.fileno(), select.POLLIN | (select.POLLOUT if self._unsent else 0)))
        return wanted

    def serve(self, fd: int) -> None:
        """Take what it says or prints."""
        if fd == self._output:
            self._print()
        else:
            self._send()
            self._receive()

    def fork(self, incarnation: int, environ: dict[str, str]) -> None:
        """Have a rank agent forked."""
        self._forking[incarnation] = environ
        self._unsent.append(incarnation)
        self._standby_at = time.monotonic() + STANDBY_SECONDS
        self._send()

    def standby_ended(self, pid: int) -> None:
        """Take the end of a process that may be the rank agent that stands by."""
        if pid == self.standby:
            self.standby = 0

    def _send(self) -> None:
        """Send what waits, as far as the socket takes it."""
        while self._unsent and self._sock is not None:
            incarnation = self._unsent[0]
            words = {"do": "fork", "incarnation": incarnation, "environ": self._forking[incarnation]}
            try:
                unix_messages.send(self._sock, words)
            except BlockingIOError:
                break
            except ConnectionError:
                break  # it has ended, which ``ended`` receives
            except OSError:  # no memory for what is long
                self._tell_forked({"incarnation": incarnation, "environ": self._forking.pop(incarnation)})
            del self._unsent[0]

    def _receive(self) -> None:
        while self._sock is not None:
            try:
                received = unix_messages.receive(self._sock)
            except (OSError, ValueError):
                break
            if received is None:
                self._sock.close()
                self._sock = None  # the kernel reports its end
                break
            self._heard(received[0])

    def _heard(self, words: dict[str, Any]) -> None:
        if words["do"] == "ready":
            self.ready, self._give_up_at = True, None
            if not self._words.get("serves_ranks"):
                self._standby_at = time.monotonic() + STANDBY_SECONDS
            self._print()
            printed = self._printed.decode(errors="replace")
            known = {name: words[name] for name in ("modules", "seconds", "versions")}
            self._say(do="prepared", words=printed, **known)
        elif words["do"] == "failed":
            self._why, self._lacks = str(words["why"]), str(words.get("module", ""))
        elif "incarnation" not in words:
            self.standby, self._standby_asked = int(words.get("pid", 0)), False
        elif words["do"] in ("forked", "not_forked"):
            if words.get("pid") == self.standby:
                self.standby = 0
            environ = self._forking.pop(int(words["incarnation"]), {})
            self._tell_forked(words if "pid" in words else words | {"environ": environ})

    def _print(self) -> None:
        while self._output >= 0:
            try:
                data = os.read(self._output, 65536)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                os.close(self._output)
                self._output = -1
            self._printed = (self._printed + data)[-KEPT_WORDS:]


class NoForkError(Exception):
    """The host's fork server cannot fork a rank; the rank starts by itself."""


class ForkServerClient:
    """The connection by which one rank was forked (`fork_server`); while it is open the rank may live."""

    def __init__(self, directory: str) -> None:
        """Connect. Raises NoForkError where nobody listens: it still imports, or has failed."""
        key = rank_identity.host_key(rank_identity.host_identity())
        path = f"{directory}/{key}/{unix_messages.RANKS_SOCKET_NAME}"
        try:
            self._sock = unix_messages.connected_to(path, seconds=FORK_SECONDS)
        except OSError as error:
            raise NoForkError(f"it still imports, or has ended ({error.strerror})") from None
        self.fd = self._sock.fileno()

    def start(self, fds: tuple[int, ...], command: dict[str, Any]) -> int:
        """Have the rank forked; return its process id. Raises NoForkError and NotStartedError."""
        try:
            unix_messages.send(self._sock, command, fds)
            received = unix_messages.receive(self._sock)
        except (OSError, ValueError) as error:
            self.close()
            raise NoForkError(str(error)) from None
        if received is None:
            self.close()
            raise NoForkError("the host's warm Python has ended")
        answer = received[0]
        if answer["do"] != "started":
            self.close()
            raise start_command.NotStartedError(int(answer["exit_code"]), str(answer["why"]))
        self._sock.setblocking(False)
        return int(answer["pid"])

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
