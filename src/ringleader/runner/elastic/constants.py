"""Words of elastic jobs. Path and names are Horovod's."""

from __future__ import annotations

RESET_LIMIT_EXCEEDED_MESSAGE = (
    "Horovod was shutdown because number of resets during elastic job exceeded limit: {}"
)
