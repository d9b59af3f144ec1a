"""The files that one rank reads and writes besides its output, and the environment that names them.

Also libraries under the names by which mpi4py asks for them, where a distribution has others.
"""

from __future__ import annotations

import json
import os

from ringleader.agents import protocol
from ringleader.agents.light_imports import Any, Iterator, Mapping, suppress

LINKS = "RINGLEADER_PROXY_LIBRARY_LINKS"
"""Environment of an MPI proxy: JSON of name → library, for links that it makes on its host."""


class RankFiles:
    """A rank's files in the job's directory; all are for the user's eyes only."""

    def __init__(self, directory: str, rank: int) -> None:
        """Begin with none of them."""
        self._directory = directory
        self.status = f"{directory}/status.{rank}"
        """Where the rank reads how the others are; with a process id and ``.ask``: where that is asked."""
        self._call = f"{directory}/call.{rank}"
        self._called = False
        self._trace = f"{directory}/trace.{rank}.json.gz"
        self._trouble: OSError | None = None

    def keep_call(self, piece: bytes) -> None:
        """Append a piece of the pickled function of ``ringleader.run``."""
        self._called = True
        try:
            with open(self._call, "ab", opener=_private) as file:
                file.write(piece)
        except OSError as error:
            self._trouble = error  # told when the rank is to start

    def result(self) -> Iterator[bytes]:
        """Return the pickled result of that function, or the rank's trace, in pieces; nothing without one."""
        path = f"{self._call}.result" if self._called else self._trace
        with suppress(FileNotFoundError), open(path, "rb") as file:  # noqa: PTH123
            while piece := file.read(protocol.PIECE):
                yield piece

    def add_status(self, lines: list[dict[str, Any]]) -> None:
        """Append lines to the file in which this rank may read how the others are.

        Without room for them nothing is lost but words: a rank that waits for one that ended then waits for
        the end of its own patience.
        """
        with suppress(OSError), open(self.status, "ab", opener=_private) as file:
            for line in lines:  # without spaces: the rank's Python looks for words in it
                file.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")

    def environment(self, environ: Mapping[str, str], words: Mapping[str, Any]) -> dict[str, str]:
        """Return the command's environment: what the MPI gave us, changed as the launcher says.

        Raises OSError where the rank's files cannot be written.
        """
        if self._trouble is not None:
            raise self._trouble
        env = dict(environ)
        for name in words.get("unset", ()):
            env.pop(name, None)
        env.update(words["env"])
        here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120
        startup, rest = f"{here}/python_startup", env.get("PYTHONPATH", "")
        env["PYTHONPATH"] = f"{startup}:{rest}" if rest else startup
        links = words.get("links", {})
        if links:
            env["LD_LIBRARY_PATH"] = library_path(self._directory, links, env.get("LD_LIBRARY_PATH", ""))
        if places := env.get("LD_LIBRARY_PATH"):
            # Each daemon and each launcher that a start goes through puts the MPI's in front once more.
            env["LD_LIBRARY_PATH"] = ":".join(dict.fromkeys(places.split(":")))
        with open(self.status, "wb", opener=_private):
            env["RINGLEADER_STATUS_FILE"] = self.status
        if env.get("RINGLEADER_PROFILE"):
            env["RINGLEADER_PROFILE_FILE"] = self._trace
        if self._called:
            env["RINGLEADER_CALL_IN"], env["RINGLEADER_CALL_OUT"] = self._call, f"{self._call}.result"
        for name in ("RINGLEADER_TOKEN", "RINGLEADER_CONTROL", "RINGLEADER_JOB_DIR"):
            env.pop(name, None)
        return env


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def library_path(directory: str, links: Mapping[str, str], rest: str) -> str:
    """Make links (name to library) in a directory of a host; return LD_LIBRARY_PATH, ``rest`` at its end."""
    place = f"{directory}/lib"
    with suppress(FileExistsError):
        os.mkdir(place, 0o700)  # noqa: PTH102
    for name, target in links.items():
        with suppress(FileExistsError):
            os.symlink(target, f"{place}/{name}")  # noqa: PTH211
    return f"{place}:{rest}" if rest else place
