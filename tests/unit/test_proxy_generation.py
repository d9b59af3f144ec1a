"""What a proxy does when a generation breaks."""

from __future__ import annotations

import types
from typing import Any
from unittest import mock

from ringleader.collectives.mpi_proxy.call_table import Call
from ringleader.collectives.mpi_proxy.proxy_generation import Pending, ProxyGeneration


def test_receives_are_cancelled_once_though_several_members_are_lost() -> None:
    """Open MPI 4 crashes where a receive is cancelled twice."""
    generation: Any = ProxyGeneration.__new__(ProxyGeneration)
    generation.broken = False
    received, sent = mock.Mock(), mock.Mock()
    generation.requests = [
        Pending(types.SimpleNamespace(call=call), request, ())  # type: ignore[arg-type]
        for call, request in ((Call.RECEIVE, received), (Call.SEND, sent))
    ]
    for _ in range(2):
        generation.end_requests()
    received.Cancel.assert_called_once_with()
    sent.Cancel.assert_not_called()
