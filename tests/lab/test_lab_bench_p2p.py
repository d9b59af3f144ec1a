"""``ringleader bench p2p`` between a lab's hosts: the slow direction is named, what was measured is kept."""

import json

import pytest

pytestmark = [pytest.mark.lab, pytest.mark.mpi, pytest.mark.long]


def test_the_slow_direction_is_named(scratch_name, ringleader, tmp_path):
    words = ("--hosts", "3", "--slots", "1", "--bandwidth", "400mbit", "--ssh-port", "41")
    assert ringleader("lab", "up", "--lab-name", scratch_name, *words).returncode == 0
    assert ringleader("lab", "slow", "h3", "--name", scratch_name, "--into", "40mbit").returncode == 0
    words = ("--lab-name", scratch_name, "-b", "8", "-e", "2M", "-f", "512", "--seconds", "12")
    done = ringleader("bench", "p2p", *words, "-o", str(tmp_path), "--name", "a")
    assert done.returncode == 0, done.stderr
    assert f"! {scratch_name}-h3 receives" in done.stdout, done.stdout
    run = json.loads((tmp_path / "a/run.json").read_text())
    assert len(run["places"]) == 3 and run["context"]["lab"] and not run["silences"]
    into = [one["rate"] for one in run["transfers"] if one["target"] == 2 and one["size"] >= 1 << 18]
    assert into and all(rate < 10e6 for rate in into)
