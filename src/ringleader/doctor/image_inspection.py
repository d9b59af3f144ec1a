"""Finds out what the self-test decides on. Everything that could hang is asked with a deadline."""

from __future__ import annotations

import json
import platform
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ringleader import __version__
from ringleader.doctor import import_checks, leftover_secrets, shared_libraries, two_rank_test
from ringleader.doctor.image_facts import Facts
from ringleader.doctor.import_checks import ImportChecks
from ringleader.images.recipe import RECORD

LDD_SECONDS = 120.0


def collect(
    *,
    environ: Mapping[str, str],
    seconds: float,
    progress: Callable[[str], None],
    manifest: Path = Path(RECORD),
) -> Facts:
    """Return the facts of this place.

    ``seconds``: what all of it may take together; what comes after that time gets a second each.
    """
    checks = ImportChecks(environ=environ, end=time.monotonic() + seconds)
    claims, manifest_error = read_manifest(manifest)
    modules = []
    for name in import_checks.DISTRIBUTIONS:
        progress(f"loading {name}")
        modules.append(checks.module(name))
    progress("loading libraries")
    libraries = tuple(checks.library(name) for name in (*import_checks.LIBRARIES, *import_checks.DRIVER))
    mpi = checks.mpi()
    paths = shared_libraries.files(mpi.library)
    progress(f"asking ldd about {len(paths)} libraries")
    missing, ldd_error = shared_libraries.missing(paths, environ=environ, seconds=checks.left(LDD_SECONDS))
    account = leftover_secrets.account()
    progress("starting sshd and two ranks")
    wanted = claims is not None and "sshd" in claims.get("blocks", {})
    return Facts(
        manifest=claims,
        manifest_error=manifest_error,
        python=platform.python_version(),
        executable=sys.executable,
        ringleader=__version__,
        modules=tuple(modules),
        libraries=libraries,
        system_nccl=shared_libraries.system_nccl(),
        mpi=mpi,
        providers=shared_libraries.providers(),
        missing=missing,
        looked_at=len(paths),
        ldd_error=ldd_error,
        account=account,
        keys=leftover_secrets.keys(),
        pip_sources=leftover_secrets.pip_sources(environ, account.home),
        apt_hosts=leftover_secrets.apt_hosts(),
        two_ranks=two_rank_test.run(checks, own_config=wanted),
    )


def read_manifest(path: Path) -> tuple[dict[str, Any] | None, str]:
    """Return what an image says of itself (``None``: nothing), and what is wrong with that."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None, ""
    except (OSError, ValueError) as error:
        return None, str(error)
    return (found, "") if isinstance(found, dict) else (None, "it is no JSON object")
