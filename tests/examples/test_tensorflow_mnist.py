"""The TensorFlow examples: ranks end with the same weights, and learn the digits."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.mpi, pytest.mark.long, pytest.mark.timeout(400)]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.parametrize("example", ["tensorflow2_mnist.py", "tensorflow1_mnist.py"])
@pytest.mark.parametrize("ranks", [1, 2])
def test_ranks_learn_the_digits_together(example: str, ranks: int) -> None:
    command = [sys.executable, "-m", "ringleader", "run", "--oversubscribe", "-n", str(ranks), "--"]
    command += [sys.executable, str(EXAMPLES / example), "--check-equal"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=390, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    (accuracy,) = (
        line.split("test accuracy: ")[1].split("%")[0] for line in lines if "test accuracy: " in line
    )
    assert float(accuracy) > 94
    digests = {line.split(": ")[1] for line in lines if "weights of rank" in line}
    assert len(digests) == 1 and sum("weights of rank" in line for line in lines) == ranks
