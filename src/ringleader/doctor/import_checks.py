"""Questions that the self-test asks in their own processes, each with a deadline."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from ringleader.doctor.image_facts import Launcher, Library, Module
from ringleader.doctor.import_probe import MARK
from ringleader.errors import RefusedError
from ringleader.images.blocks import KINDS
from ringleader.images.processes import answer

DISTRIBUTIONS = {name: names for kind in KINDS for name, *names in kind.python_packages}
"""Python packages that blocks bring → names under which they may be installed."""
LIBRARIES = tuple(library for kind in KINDS for library in kind.libraries)
DRIVER = ("libcuda.so.1", "libnvidia-ml.so.1")
"""Libraries that come with the host's driver, never with an image."""
MODULE_SECONDS = 120.0
LIBRARY_SECONDS = 30.0


@dataclass(frozen=True, kw_only=True)
class ImportChecks:
    """Asks until its time is over."""

    environ: Mapping[str, str]
    end: float
    """By the clock of ``time.monotonic``."""

    def left(self, most: float) -> float:
        """Return the seconds that a question may take."""
        return max(1.0, min(most, self.end - time.monotonic()))

    def module(self, name: str) -> Module:
        """Import a package, where it is installed."""
        installed = version_of(name)
        if not installed:
            return Module(name=name)
        found = self._probe("module", name, MODULE_SECONDS)
        libraries = tuple(found.pop("libraries", ()))
        return Module(name=name, installed=installed, libraries=libraries, **found)

    def library(self, name: str) -> Library:
        """Load a library by its name."""
        return Library(name=name, **self._probe("library", name, LIBRARY_SECONDS))

    def mpi(self) -> Launcher:
        """Find the MPI that `ringleader run` would take."""
        from ringleader.launch.mpirun.mpi_discovery import find_mpi

        try:
            found = find_mpi(None, environ=self.environ)
        except RefusedError as error:
            return Launcher(error=error.faults[0].what)
        return Launcher(
            family=found.family, version=found.version, mpirun=found.mpirun, library=found.library
        )

    def _probe(self, sort: str, name: str, most: float) -> dict[str, Any]:
        seconds = self.left(most)
        argv = (sys.executable, "-P", "-m", "ringleader.doctor.import_probe", sort, name)
        said = answer(argv, environ=self.environ, seconds=seconds)
        for line in reversed(said.out.splitlines()):
            if line.startswith(MARK):
                found: dict[str, Any] = json.loads(line[len(MARK) :])
                return found
        if said.code is None:
            return {"error": f"it did not load within {seconds:.0f} s"}
        how = f"signal {-said.code}" if said.code < 0 else f"code {said.code}"
        return {"error": f"its process ended with {how}: {said.words[-200:]}"}


def version_of(name: str) -> str:
    """Return a package's version by its metadata; empty where it is not installed."""
    for distribution in DISTRIBUTIONS.get(name, (name,)):
        try:
            return metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
    return ""
