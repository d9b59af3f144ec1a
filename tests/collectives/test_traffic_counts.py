"""Bytes that the engine counts, against those of operations of known sizes."""

from typing import Any

import pytest

pytestmark = [pytest.mark.mpi, pytest.mark.torch]


@pytest.mark.parametrize("per_host", ["2", pytest.param("1", marks=pytest.mark.long)])
def test_bytes_of_known_operations(jobs: Any, per_host: str) -> None:
    jobs("traffic.py", per_host, ranks=2, RINGLEADER_RANKS_PER_HOST=per_host).passed(2)
