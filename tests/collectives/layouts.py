"""Where ranks of this machine take themselves to be, and tables of programs that run there."""

from dataclasses import dataclass
from typing import Any

import pytest


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Some ranks on one host or, as the environment has it, on several."""

    name: str
    size: int
    per_host: str = ""
    """Ranks on each host but the last; "" for one host."""
    transport: str = "window"
    """What the engine exchanges with."""

    @property
    def environ(self) -> dict[str, str]:
        """Return what the ranks have in their environment."""
        return {"RINGLEADER_RANKS_PER_HOST": self.per_host}


CONTRACT = "../../frameworks/programs/contract.py"
"""Every operation of a framework, compared with NumPy; its argument is one of the `bridges` beside it."""
LAYOUTS = {
    one.name: one
    for one in (
        Layout(name="1", size=1, transport="loopback"),
        *(Layout(name=str(size), size=size) for size in (2, 3, 4)),
        Layout(name="2x1", size=2, per_host="1", transport="mpi"),
        Layout(name="3x1", size=3, per_host="1", transport="mpi"),
        Layout(name="2x2", size=4, per_host="2", transport="hosts"),
        Layout(name="3x2", size=6, per_host="2", transport="hosts"),
        Layout(name="2+1", size=3, per_host="2", transport="hosts"),
        Layout(name="3+1", size=4, per_host="3", transport="hosts"),
    )
}
"""``2x1``: two hosts with a rank each; ``2+1``: two ranks on a host, and one on another."""


def programs(*rows: tuple[Any, ...]) -> Any:
    """Return the parameters ``program, layout, environ`` of a test.

    A row is the program's words, in which `Jobs.pass_on` knows the transport, the layouts of `make test`,
    those of `make test-long` and, where there is more, the environment. ``!`` marks a smoke test.
    """
    found = []
    for words, short, long, *environ in rows:
        for name in (*short.split(), *long.split()):
            layout, more = LAYOUTS[name.removesuffix("!")], dict(*environ)
            marks: Any = pytest.mark.long if name in long.split() else ()
            if name.endswith("!"):
                marks = pytest.mark.smoke
            shown = " ".join([words.rpartition("/")[2].replace(".py", ""), layout.name, *more.values()])
            found.append(pytest.param(words, layout, more, marks=marks, id=shown))
    return pytest.mark.parametrize(("program", "layout", "environ"), found)
