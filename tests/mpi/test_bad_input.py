"""A part of the campaign of bad input, the same every time: each command once, in surroundings by chance."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

CAMPAIGN = Path(__file__).parents[1] / "campaigns" / "bad_input.py"

pytestmark = pytest.mark.mpi


def can_have_namespaces() -> bool:
    """Say whether this user may make the namespaces that a worker of the campaign lives in."""
    words = ("unshare", "--mount", "--pid", "--net", "--fork", "--mount-proc", "true")
    try:
        return os.getuid() == 0 and subprocess.run(words, capture_output=True, timeout=20).returncode == 0
    except OSError:
        return False


@pytest.mark.skipif(not can_have_namespaces(), reason="a worker needs root and namespaces of its own")
@pytest.mark.timeout(400)
def test_bad_input_ends_in_a_message(tmp_path):
    file = tmp_path / "results.json"
    words = (sys.executable, str(CAMPAIGN), "--sample", "45", "--seed", "11", "--json-file", str(file))
    done = subprocess.run(words, capture_output=True, text=True, timeout=380)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    results = json.loads(file.read_text())
    assert len(results) == 45 and all(one["faults"] == [] for one in results)
    assert len({one["command"] for one in results}) >= 25
