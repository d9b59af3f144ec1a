"""The lines are tf_cnn_benchmarks', to the character, so that what reads those reads these."""

import re
from collections.abc import Callable

import pytest

from imagenet_synthetic import row

pytestmark = pytest.mark.torch

TINY = ("--model", "resnet18", "--image-size", 32, "--batch-size", 2, "--num-batches", 6)
ROW = re.compile(r"(\d+)\timages/sec: (\d+\.\d) \+/- (\d+\.\d) \(jitter = (\d+\.\d)\)\t(\d+\.\d{3})")


def test_row_follows_the_formulas() -> None:
    """Rates 10, 20, 40, 40: mean of times, not of rates; population deviation over the root; 1.4826 MAD."""
    seconds = [0.8, 0.4, 0.2, 0.2]
    assert row(4, seconds, 8, 7.8999) == "4\timages/sec: 20.0 +/- 6.5 (jitter = 14.8)\t7.900"
    assert row(1, [0.5], 4, 6.9) == "1\timages/sec: 8.0 +/- 0.0 (jitter = 0.0)\t6.900"


@pytest.mark.long
@pytest.mark.mpi
@pytest.mark.parametrize("ranks", [1, 2])
def test_printed_lines(run: Callable, ranks: int) -> None:
    words = (*TINY, "--num-warmup-batches", 1, "--display-every", 3)
    ended = run("imagenet_synthetic.py", *words, ranks=ranks, launched=ranks == 2)
    assert all(line.startswith("[0] ") for line in ended.lines), "another rank than 0 prints"
    lines = [line.removeprefix("[0] ") for line in ended.lines]
    assert "Model:       resnet18" in lines
    assert f"Batch size:  {2 * ranks} global" in lines
    body = lines[lines.index("Running warm up") :]
    assert body[:3] == ["Running warm up", "Done warm up", "Step\tImg/sec\ttotal_loss"]
    rows = [ROW.fullmatch(line) for line in body[3:6]]
    assert all(rows), body
    assert [int(match[1]) for match in rows if match] == [1, 3, 6]
    assert body[6] == body[8] == "-" * 64 and len(body) == 9
    total = re.fullmatch(r"total images/sec: (\d+\.\d\d)", body[7])
    assert total and rows[-1]
    # The last row covers the same steps: ranks times one rank's rate, less what is spent between steps.
    assert float(total[1]) == pytest.approx(ranks * float(rows[-1][2]), rel=0.1, abs=0.2)


@pytest.mark.mpi
def test_gradients_in_half_precision(run: Callable) -> None:
    ended = run("imagenet_synthetic.py", *TINY, "--num-warmup-batches", 0, "--fp16-allreduce", ranks=2)
    assert ended.line("[0] AllReduce:").strip() == "fp16"
    assert float(ended.line("[0] total images/sec: ")) > 0


@pytest.mark.mpi
def test_pictures_that_are_too_small_are_refused(run: Callable) -> None:
    ended = run("imagenet_synthetic.py", "--model", "inception3", "--image-size", 32, ranks=2, fails=True)
    assert ended.errors.count("--image-size 32: inception3 needs at least 75") == 1
    assert "Traceback" not in ended.errors
