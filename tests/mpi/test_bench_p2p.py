"""``ringleader bench p2p`` between two ranks of this machine."""

import json

import pytest

pytestmark = pytest.mark.mpi


def test_two_ranks_of_this_machine(workplace, tmp_path):
    words = (
        "--seconds",
        "2",
        "-f",
        "1024",
        "-e",
        "1M",
        "--bidirectional",
        "-o",
        str(tmp_path),
        "--name",
        "a",
    )
    done = workplace.run("bench", "p2p", *words)
    assert done.returncode == 0, done.stderr
    assert b"# Size" in done.stdout and b"Latency (us)" in done.stdout
    run = json.loads((tmp_path / "a/run.json").read_text())
    assert run["kind"] == "point-to-point" and not run["failure"] and not run["silences"]
    assert [place["host"] for place in run["places"]] == ["localhost", "localhost"]
    small = [one for one in run["transfers"] if one["size"] == 1]
    assert len(small) == 2 and all(one["latency"] > 0 and one["rate"] > 0 for one in small)
    again = workplace.run("bench", "p2p", *words)
    assert again.returncode == 2 and b"--replace" in again.stderr
