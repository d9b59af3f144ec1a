"""What mpirun itself prints, read: aborts, lost daemons, and the lines that say something. Pure."""

from __future__ import annotations

import re

_MOST_LINES = 20
_OPEN_MPI_ABORT = re.compile(r"MPI_ABORT was invoked on rank (\d+) in.*?[Ee]rrorcode:? (-?\d+)", re.DOTALL)
_LOST_DAEMON = re.compile(
    r"Remote daemon:\s*\S+ on node (?P<node>\S+)|Remote host:\s*(?P<host>\S+)\s+Daemon exit status:"
)
_HYDRA_ABORT = re.compile(r"Abort\((-?\d+)\) on node \d+ \(rank \d+ in comm \d+\)")

_CAUSE = re.compile(r"\bringleader: |^(?:\w+\.)*\w+(?:Error|Exception): ")


def abort_code(line: str) -> int | None:
    """Return the code in the line that a rank of MPICH or Intel MPI writes when it calls MPI_Abort."""
    found = _HYDRA_ABORT.match(line)
    return int(found[1]) if found else None


def aborts_in(output: str) -> dict[int, int]:
    """Return rank → code of the MPI_Abort that Open MPI's mpirun tells of."""
    found = _OPEN_MPI_ABORT.search(output)
    return {int(found[1]): int(found[2])} if found else {}


def daemons_lost_in(output: str) -> list[str]:
    """Return the nodes whose daemon Open MPI's mpirun says to have lost, by their own or our names."""
    return list(dict.fromkeys(found["node"] or found["host"] for found in _LOST_DAEMON.finditer(output)))


def cause_in(output: str) -> str:
    """Return the line that says why mpirun ended: a message of ours, or of Python; else the last line."""
    lines = [line.strip() for line in relevant_lines(output).splitlines()]
    return next((line for line in lines if _CAUSE.search(line)), lines[-1] if lines else "")


def relevant_lines(output: str) -> str:
    """Return the lines of mpirun's own output that say something, indented: no rulers, no repetitions."""
    seen: dict[str, None] = {}
    for line in output.splitlines():
        text = line.strip()
        if text and not set(text) <= set("-=*+#"):
            seen.setdefault(text, None)
    lines = list(seen)
    if len(lines) > _MOST_LINES:
        lines = [*lines[: _MOST_LINES // 2], "…", *lines[-_MOST_LINES // 2 :]]
    return "\n".join(f"    {line}" for line in lines)
