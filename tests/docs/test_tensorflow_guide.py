"""The guide to tf_cnn_benchmarks: its script on two ranks, its manifest through the converter."""

import sys
from pathlib import Path

import pytest
from tests.commands import finished
from tests.docs.pages import blocks

GUIDE = "docs/guides/tf-cnn-benchmarks.md"
RINGLEADER = [sys.executable, "-m", "ringleader"]


def test_the_manifest_of_2019_is_converted(tmp_path: Path) -> None:
    manifest = tmp_path / "tensorflow-benchmarks.yaml"
    manifest.write_text(blocks(GUIDE, "yaml")[0][1])
    done = finished([*RINGLEADER, "render", "mpijob", "--convert", str(manifest)], timeout=60, check=True)
    assert "apiVersion: kubeflow.org/v2beta1" in done.stdout
    assert "tf_cnn_benchmarks.py" in done.stdout


@pytest.mark.long
def test_the_script_trains(tmp_path: Path) -> None:
    pytest.importorskip("tensorflow")
    script = tmp_path / "train.py"
    script.write_text(blocks(GUIDE, "python")[0][1] + 'print("trained", flush=True)\n')
    done = finished(
        [*RINGLEADER, "run", "--as-horovod", "--oversubscribe", "-n", "2", "--", sys.executable, str(script)],
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("trained") == 2
