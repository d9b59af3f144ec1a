"""Libraries under the names by which mpi4py asks for them, where a distribution has others."""

from __future__ import annotations

import os

from ringleader.agents.fast_stdlib import suppress

TYPE_CHECKING = False  # see fast_stdlib.py
if TYPE_CHECKING:
    from collections.abc import Mapping

LINKS = "RINGLEADER_PROXY_LIBRARY_LINKS"
"""Environment of an MPI proxy: JSON of name → library, for links that it makes on its host."""


def library_path(directory: str, links: Mapping[str, str], rest: str) -> str:
    """Make links (name to library) in a directory of a host; return LD_LIBRARY_PATH, ``rest`` at its end."""
    place = f"{directory}/lib"
    with suppress(FileExistsError):
        os.mkdir(place, 0o700)  # noqa: PTH102
    for name, target in links.items():
        with suppress(FileExistsError):
            os.symlink(target, f"{place}/{name}")  # noqa: PTH211
    return f"{place}:{rest}" if rest else place
