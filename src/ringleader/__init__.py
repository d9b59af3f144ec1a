"""Ringleader trains one script on many ranks and says how close to linear the job is.

This module stays nearly empty on purpose: ``import ringleader`` must cost almost nothing and must need
neither MPI nor a framework. What a user calls from Python is looked up on first use.

    ringleader.run(function, np=2)   start ranks from Python; Host, Ssh, Placement, ElasticOptions are for it
    ringleader.progress(samples=n)   tell the launcher that n samples were trained
"""

from __future__ import annotations

__version__ = "0.1.0"

__all__ = ["ElasticOptions", "Host", "Placement", "Ssh", "__version__", "progress", "run"]

TYPE_CHECKING = False  # a type checker takes it for typing's, whose import would be the dearest line here
if TYPE_CHECKING:
    from typing import Any

    from ringleader.agents.training_progress import progress as progress
    from ringleader.api import run as run
    from ringleader.plan.elastic_options import ElasticOptions as ElasticOptions
    from ringleader.plan.job import Host as Host
    from ringleader.plan.job import Placement as Placement
    from ringleader.plan.job import Ssh as Ssh

_LAZY = {
    "run": "ringleader.api",
    "progress": "ringleader.agents.training_progress",
    "ElasticOptions": "ringleader.plan.elastic_options",
    "Host": "ringleader.plan.job",
    "Placement": "ringleader.plan.job",
    "Ssh": "ringleader.plan.job",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'ringleader' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_LAZY[name]), name)
    globals()[name] = value
    return value
