"""Ask remote hosts what they are, all at once: each gives an answer or a fault, none can hold up the rest."""

from __future__ import annotations

import io
import json
import re
import select
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from ringleader.agents import hardware, host_facts_script, light_imports, rank_identity, sysfs, usable_cores
from ringleader.errors import Fault
from ringleader.launch.host_probe.host_answer import Question, in_directory
from ringleader.launch.ssh.connections import TIMED_OUT, Reply, SshConnections
from ringleader.launch.ssh.failure_messages import Failure, explain
from ringleader.plan.job import Host

MARK = "ringleader-answer "
"""Begins the line of the answer: a login shell may print a greeting first."""
ANSWER_SECONDS = 20.0
"""What a host may take to answer once it is connected."""
AT_ONCE = 64
"""Hosts asked at a time."""
ATTEMPTS = 3
"""An sshd (or a jump host's) drops connections when many arrive at once; those are tried again."""
STOP_CHECK_SECONDS = 0.25
"""How often the one who waits looks whether to stop."""
OTHER_PYTHONS = """\
for name in "$0" python3 python3.13 python3.12 python3.11 python; do
  found=$(command -v $name) && echo "$found $("$found" --version 2>&1)"
done"""


OF_FACTS = (light_imports, rank_identity, sysfs, hardware, usable_cores, host_facts_script)
"""Modules of the program that answers what a host is; the last one has the function ``answer``."""


def program(question: Mapping[str, Any], modules: Sequence[ModuleType] = OF_FACTS, more: str = "") -> bytes:
    """Return what a host's Python reads from its standard input. ``more``: further arguments of ``answer``.

    It says its version first, in words that any Python understands, so that one that is too old for the
    rest can be reported.
    """
    sources = [(module.__name__, Path(str(module.__file__)).read_text("utf-8")) for module in modules]
    return f"""\
import sys
if sys.version_info < (3, 8):
    print({MARK!r} + '{{"too_old": "%d.%d.%d"}}' % sys.version_info[:3])
    sys.exit(0)
import json, os, types
for name in ("ringleader", "ringleader.agents"):
    sys.modules[name] = types.ModuleType(name)
for name, source in {sources!a}:
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(source, name, "exec"), module.__dict__)
    setattr(sys.modules["ringleader.agents"], name.rpartition(".")[2], module)
known = module.answer(json.loads({json.dumps(question)!a}), os.environ{more})
sys.stdout.write({MARK!r} + json.dumps(known) + "\\n")
sys.stdout.flush()
os._exit(0)  # a resolver that hangs in a thread must not keep us
""".encode()


def read_answer(stdout: bytes) -> dict[str, Any] | None:
    """Return the answer in a host's output, ``None`` where there is none."""
    for line in stdout.decode(errors="replace").splitlines():
        if line.startswith(MARK):
            try:
                found = json.loads(line[len(MARK) :])
            except ValueError:
                return None
            return found if isinstance(found, dict) else None
    return None


Bring = Callable[[Host, Callable[..., Reply]], "dict[str, Any] | Fault | Reply"]
"""Brings code to a host by means of ``SshQuery.reply``: see ``code_sync.CodeSender.bring``."""


@dataclass(frozen=True, kw_only=True)
class SshQuery:
    """How hosts are asked over ssh."""

    ssh: SshConnections
    question: Question
    python: str
    """Interpreter that is to answer, on every host."""
    seconds: float
    """What one host may take, connecting included."""
    shared: bool = False
    """The connections are somebody else's too: where asking fails they stay open."""
    bring: Bring | None = None
    """Brings the code there before anything is asked; ``None``: the files are there."""

    def ask(self, host: Host) -> dict[str, Any] | Fault:
        """Return the host's answer, or why there is none."""
        where = f"host {host.name}"
        question, placed = self.question, dict[str, Any]()
        try:
            brought = None if self.bring is None else self.bring(host, self.reply)
            if isinstance(brought, Fault):
                return brought
            if isinstance(brought, dict):
                placed, there = brought, brought["directory"]
                question = in_directory(question, there, exists=brought["exists"])
            # -I -S: neither the account's environment nor a broken site-packages can spoil the answer.
            argv = (self.python, "-I", "-S", "-")
            reply = self.reply(host, argv, program(question), self.seconds)
            answer = read_answer(reply.stdout)
            if answer is None:
                return explain(self.failure(host, reply))
        except OSError as error:
            what = f"it cannot be probed: {error.strerror or error}"
            hint = "this machine lacks room in /tmp, processes (ulimit -u) or files (ulimit -n)"
            return Fault(where=where, what=what, hint=hint)
        if "too_old" in answer:
            what = f"{self.python} is Python {answer['too_old']} there, which is too old"
            hint = "use the same Python everywhere, or name the right interpreter with --python"
            return Fault(where=where, what=what, hint=hint)
        if isinstance(brought, Reply):
            late = "it took too long" if brought.exit_code == TIMED_OUT else ""
            said = brought.stderr.strip().splitlines() or [late or f"exit code {brought.exit_code}"]
            what = f"--sync: it gave no answer about the copy of the code: {said[-1][:300]}"
            return Fault(where=where, what=what, hint="start again; to allow more time: --start-timeout")
        return answer | placed

    def give_up(self) -> None:
        """End what the threads wait for."""
        if not self.shared:
            self.ssh.close()

    def reply(self, host: Host, argv: Sequence[str], stdin: bytes | Path, seconds: float) -> Reply:
        """Run a command on a host, again where its sshd drops the connection. ``stdin``: or a file."""
        end, attempt = time.monotonic() + seconds, 1
        while True:
            left = max(1.0, end - time.monotonic())
            with open(stdin, "rb") if isinstance(stdin, Path) else io.BytesIO(stdin) as file:  # noqa: PTH123
                given = stdin if isinstance(stdin, bytes) else file
                reply = self.ssh.run(host, argv, stdin=given, deadline=left)
            if reply.exit_code != 255 or not dropped(reply.stderr) or attempt == ATTEMPTS:
                return reply
            time.sleep(0.3 * attempt)
            attempt += 1

    def failure(self, host: Host, reply: Reply) -> Failure:
        """Return what is known about a host that gave no answer."""
        settings = self.ssh.settings(host)
        keys = tuple(key for key in settings.get("identityfile", ()) if Path(key).expanduser().is_file())
        there = ""
        if reply.exit_code >= 0 and reply.exit_code != 255:
            script = ("sh", "-c", OTHER_PYTHONS, self.python)
            there = self.ssh.run(host, script, deadline=ANSWER_SECONDS).stdout.decode(errors="replace")
        return Failure(
            name=host.name,
            exit_code=reply.exit_code,
            stderr=reply.stderr,
            stdout=reply.stdout.decode(errors="replace"),
            timed_out=reply.exit_code == TIMED_OUT,
            deadline=self.seconds,
            python=self.python,
            pythons_there=there,
            settings=settings,
            keys_present=keys,
        )


def dropped(stderr: str) -> bool:
    """Whether a connection was dropped before sshd had said who it is: the sign of too many at once."""
    return bool(re.search(r"_exchange_identification: .*([Cc]losed|reset)", stderr))


def ask_all(
    ask: Callable[[Host], dict[str, Any] | Fault],
    hosts: Sequence[Host],
    progress: Callable[[str], None],
    *,
    give_up: Callable[[], None],
    stop: int | None = None,
    sending: Callable[[], str] = str,
) -> tuple[dict[Host, dict[str, Any]], list[Fault]]:
    """Ask every host, AT_ONCE at a time; return the answers and the faults of those that gave none.

    ``give_up`` ends what ``ask`` waits for. ``sending``: returns what the progress says besides. ``stop``: a
    descriptor; once something can be read from it, everything is given up and KeyboardInterrupt raised
    (nothing is read).
    """
    answers: dict[Host, dict[str, Any]] = {}
    faults: dict[Host, Fault] = {}
    with ThreadPoolExecutor(max_workers=min(AT_ONCE, len(hosts)), thread_name_prefix="ask") as pool:
        asked = {pool.submit(ask, host): host for host in hosts}
        waiting, told = set(asked), ""
        try:
            while waiting:
                now = reached(len(answers), len(hosts), [asked[future].name for future in waiting])
                now += sending()
                if now != told:
                    progress(now)
                    told = now
                done, waiting = wait(waiting, timeout=STOP_CHECK_SECONDS, return_when=FIRST_COMPLETED)
                if stop is not None and select.select([stop], [], [], 0)[0]:
                    raise KeyboardInterrupt
                for future in done:
                    result = future.result()
                    if isinstance(result, Fault):
                        faults[asked[future]] = result
                    else:
                        answers[asked[future]] = result
        except BaseException:
            give_up()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    answers = {host: answers[host] for host in hosts if host in answers}
    return answers, [faults[host] for host in hosts if host in faults]


def reached(count: int, total: int, waiting: Sequence[str]) -> str:
    """Return the line of progress: ``3 of 4 hosts reached, waiting for h3``; three names at most."""
    names = sorted(waiting)
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{count} of {total} hosts reached, waiting for {', '.join(names[:3])}{more}"
