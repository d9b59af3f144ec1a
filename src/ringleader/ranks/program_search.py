"""Where a program is, as a shell would find it.

``shutil.which`` does the same, but every start of a job would wait 4 ms for what else is in that module.
"""

from __future__ import annotations

import os


def which(program: str, path: str | None = None) -> str | None:
    """Return the file that would run as ``program``, None where there is none that this user may run.

    ``path`` are directories as in PATH; without it those of this process. A name with a directory in it is
    looked up as it is.
    """
    if "/" in program:
        return program if _may_be_run(program) else None
    if path is None:
        path = os.environ.get("PATH", os.defpath)
    for directory in path.split(os.pathsep) if path else ():
        file = os.path.join(directory, program)  # noqa: PTH118 - pathlib changes "./x" to "x"
        if _may_be_run(file):
            return file
    return None


def _may_be_run(file: str) -> bool:
    return os.access(file, os.X_OK) and not os.path.isdir(file)  # noqa: PTH112
