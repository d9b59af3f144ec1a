"""What Horovod's elastic options become: those of ``horovodrun`` and of ``horovod.run`` alike.

Names and meanings are Horovod's: a job is elastic with a least number of ranks or a script that finds hosts,
needs as many ranks as are asked for unless told otherwise, and a rank that fails takes its host out.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from ringleader.errors import RequestError
from ringleader.plan.elastic_options import ElasticOptions

ELASTIC_TIMEOUT = "HOROVOD_ELASTIC_TIMEOUT"
"""Seconds for hosts to come, where no option says so."""
SHORTEST_STAY, LONGEST_STAY = 1, 3600
"""Seconds that ``--blacklist-cooldown-range`` may begin and end with."""
DISCOVERY_SECONDS = 1.0
"""Between two looks at the hosts that a script finds."""
_CONSTANTS = "ringleader.runner.elastic.driver"
"""Module whose seconds scripts may change; one that nobody has imported is as it was written."""


def elastic_options(
    *,
    np: int | None,
    least: int | None = None,
    most: int | None = None,
    script: object | None = None,
    slots: int | None = None,
    reset_limit: int | None = None,
    cooldown: Sequence[float] | None = None,
    timeout: float | None = None,
    environ: Mapping[str, str],
) -> ElasticOptions | None:
    """Return how a job may change; ``None``: not at all. RequestError for what cannot be meant."""
    if least is None and script is None and most in (None, np):
        return None
    constants = sys.modules.get(_CONSTANTS)
    seconds: float = getattr(constants, "ELASTIC_TIMEOUT_SECS", ElasticOptions.timeout)
    if (told := _seconds(timeout, environ)) is not None:
        seconds = told
    looks = getattr(constants, "DISCOVER_HOSTS_FREQUENCY_SECS", DISCOVERY_SECONDS)
    return ElasticOptions(
        min_np=least or np or 1,
        max_np=most,
        discovery_script=None if script is None else str(script),
        discovery_seconds=None if looks == DISCOVERY_SECONDS else looks,
        slots=slots,
        exclude_hosts=True,
        reset_limit=reset_limit,
        cooldown=_cooldown(cooldown),
        timeout=seconds,
    )


def _seconds(timeout: float | None, environ: Mapping[str, str]) -> float | None:
    text = environ.get(ELASTIC_TIMEOUT, "")
    if timeout is not None or not text:
        return timeout
    try:
        return float(text)
    except ValueError:
        raise RequestError(f"{text!r} is not a number of seconds", where=ELASTIC_TIMEOUT) from None


def _cooldown(limits: Sequence[float] | None) -> tuple[float, float] | None:
    if not limits:
        return None
    shortest, longest = limits
    if not SHORTEST_STAY <= shortest <= longest <= LONGEST_STAY:
        hint = f"two numbers of seconds from {SHORTEST_STAY} to {LONGEST_STAY}, the shorter one first"
        raise RequestError(f"{shortest:g} {longest:g}", where="--blacklist-cooldown-range", hint=hint)
    return float(shortest), float(longest)
