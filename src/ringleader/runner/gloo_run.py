"""A command on ranks, with Horovod's settings. Path and names are Horovod's; MPI starts the ranks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ringleader.runner.launch import run_settings


def gloo_run(
    settings: Any,
    nics: Iterable[str] | None,
    env: Mapping[str, str],
    server_ip: str,
    command: Sequence[str],
) -> None:
    """Run a command to its end; RuntimeError where a rank fails.

    ``settings``: `ringleader.runner.common.util.settings.Settings`. ``env``: the launcher's environment.
    ``server_ip`` is not needed: ranks find the launcher by themselves.
    """
    run_settings(settings, nics, env, command, use_gloo=True)


def _get_min_start_hosts(settings: Any) -> int:
    """Return how many hosts an elastic job waits for at its start: 1, as nothing is tried between two."""
    return 1
