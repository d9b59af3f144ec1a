"""Seconds of elastic jobs. Path and names are Horovod's; whoever needs them reads them when a job starts."""

from __future__ import annotations

from ringleader.horovod_elastic import DISCOVERY_SECONDS

DISCOVER_HOSTS_FREQUENCY_SECS = DISCOVERY_SECONDS
"""Between two looks at the hosts."""
ELASTIC_TIMEOUT_SECS = 600
"""For enough slots to come up, where neither ``--elastic-timeout`` nor HOROVOD_ELASTIC_TIMEOUT says so."""
