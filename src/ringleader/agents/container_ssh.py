# This line may be skipped: Hydra puts ssh's -x in front of all other words, and Python takes it for its own.
"""Stands for ssh in a container: ``python -I -S container_ssh.py SOCKET [-OPTION…] HOST WORD…``.

mpirun, in the launching machine's container, starts its daemons through it. mpirun's supervisor, outside,
gets the words and our standard streams and runs the real ssh (``launch/mpirun/ssh_relay``): so keys and
connections stay out of containers, and images need no ssh. Our exit code is ssh's.
"""

from __future__ import annotations

import os
import sys

_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH100, PTH120
if _ROOT not in sys.path:  # run by path
    sys.path.append(_ROOT)
from ringleader.agents import unix_messages  # noqa: E402

CONNECT_SECONDS = 10.0
FAILED = 255
"""ssh's exit code for its own failures."""


def main() -> None:
    """Hand over our words and streams; wait for ssh's end, or that of the supervisor."""
    path, *words = sys.argv[1:]
    code = FAILED
    try:
        server = unix_messages.connected_to(path, seconds=CONNECT_SECONDS)
        unix_messages.send(server, {"words": words}, (0, 1, 2))
        server.settimeout(None)  # as long as the job runs
        answer = unix_messages.receive(server)
        code = FAILED if answer is None else int(answer[0]["exit_code"])
    except (OSError, ValueError) as error:
        sys.stderr.write(f"ringleader: the launcher's ssh cannot be used from the container: {error}\n")
        sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
