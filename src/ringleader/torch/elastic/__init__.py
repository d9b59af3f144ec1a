"""Training that continues when ranks are lost, replaced or added: ``hvd.elastic``. Names are Horovod's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ringleader.adapters.elastic import CommitError, run_fn
from ringleader.adapters.exceptions import HorovodInternalError, HostsUpdatedInterrupt
from ringleader.torch.elastic.sampler import ElasticSampler
from ringleader.torch.elastic.state import TorchState

__all__ = [
    "CommitError",
    "ElasticSampler",
    "HorovodInternalError",
    "HostsUpdatedInterrupt",
    "TorchState",
    "run",
]


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate the function that trains; its first argument is the state.

    It is called anew, with the state restored and synchronized, whenever ranks are lost, replaced or added:
    everything in which ranks meet belongs into it, also into functions that it calls. A rank that starts
    later runs the script from the top, and meets the others here. In a job that is not elastic the function
    is called once, and what it raises is passed on.
    """
    return run_fn(func)
