"""``python -I -S …/ringleader/ranks/warm_host.py``: starts a host's Python from which warm ranks are forked.

For ``--max-restarts --warm``. The launcher runs it once on each host, over ssh or as a child, and writes one
line of JSON to its standard input. It holds a connection to the launcher, which outlives all restarts and
ends with the launcher, detaches itself, and becomes the user's Python, which serves (``warm_rank_server``).
"""

from __future__ import annotations

import json
import os
import sys

_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH100, PTH120
if _ROOT not in sys.path:  # run by path
    sys.path.append(_ROOT)
from ringleader.ranks import process_tree, protocol  # noqa: E402
from ringleader.ranks.agent_outer import make_sure_open  # noqa: E402
from ringleader.ranks.fast_stdlib import signal, socket  # noqa: E402
from ringleader.ranks.launcher_connection import connected  # noqa: E402
from ringleader.ranks.open_descriptors import close_all_but  # noqa: E402

FAILED = 1
LEASE_FD = 3
"""The descriptor of the connection to the launcher."""
SILENCE_SECONDS = 30.0
"""A launcher whose machine says nothing for so long is gone."""
PROGRAM = """\
import sys
if sys.path[:1] == [""]:
    del sys.path[0]
added = [entry for entry in ({root!r},) if entry not in sys.path]
sys.path += added
from ringleader.ranks.warm_rank_server import serve
from ringleader.ranks.warm_rank import run
run(serve({directory!r}, {modules!r}), added)
"""


def main() -> None:
    """Start it; exit code 0 says that it runs, which does not say that it has imported anything."""
    for fd in (0, 1, 2):
        make_sure_open(fd)
    try:
        words = json.loads(sys.stdin.readline())
        lease = _connected(str(words["lease"]), str(words["token"]))
        os.chdir(words["cwd"])
        if os.fork() == 0:
            _become(words, lease)
    except (OSError, ValueError, KeyError) as error:
        sys.stderr.write(f"ringleader: {error}\n")
        sys.stderr.flush()
        os._exit(FAILED)
    os._exit(0)


def _connected(lease: str, token: str) -> int:
    """Return a connection to the launcher, proven on both sides, by its first address that answers."""
    problem: Exception | None = None
    for entry in lease.split(","):
        address, _, port = entry.rpartition(":")
        try:
            sock = connected(address.strip("[]"), int(port))
            protocol.introduce(sock, token)
            protocol.keep_alive(sock, SILENCE_SECONDS)
            sock.setblocking(False)
            return int(sock.detach())
        except (OSError, protocol.ProtocolError) as error:
            problem = error
    raise OSError(f"{socket.gethostname()} cannot reach the launcher ({lease}): {problem}")


def _become(words: dict[str, object], lease: int) -> None:
    """Turn the forked copy of us into the user's Python."""
    try:
        os.setsid()
        process_tree.become_subreaper()
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        os.dup2(lease, LEASE_FD)
        os.set_inheritable(LEASE_FD, True)
        close_all_but((LEASE_FD,))
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        python, env = str(words["python"]), {**os.environ, **words["env"]}  # type: ignore[dict-item]
        program = PROGRAM.format(root=_ROOT, directory=words["directory"], modules=words["modules"])
        os.execvpe(python, [python, "-c", program], env)
    finally:
        os._exit(FAILED)


if __name__ == "__main__":
    main()
