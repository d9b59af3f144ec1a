"""MXNet: operations, training, faults. In its own environment, which `make mxnet` builds."""

from pathlib import Path

import pytest
from tests.frameworks.conftest import Train

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-mxnet" / "bin" / "python"

pytestmark = [
    pytest.mark.long,
    pytest.mark.mpi,
    pytest.mark.timeout(400),
    pytest.mark.skipif(not (PYTHON.parents[1] / ".ready").exists(), reason="`make mxnet` has not been run"),
]


@pytest.mark.parametrize(("bridge", "ranks"), [("mxnet_ndarray", 2), ("mxnet_ndarray", 1), ("mxnet_np", 3)])
def test_operations_agree_with_numpy(train: Train, bridge: str, ranks: int) -> None:
    train("contract.py", bridge, ranks=ranks, python=str(PYTHON)).passed(ranks)


@pytest.mark.parametrize(("mode", "ranks"), [("gluon", 1), ("gluon", 4), ("module", 3)])
def test_any_number_of_ranks_trains_alike(train: Train, mode: str, ranks: int) -> None:
    train("mxnet_training.py", mode, ranks=ranks, python=str(PYTHON)).passed(ranks)


@pytest.mark.parametrize("mode", ["groups", "predivide", "half", "half_groups"])
def test_ways_to_exchange_gradients(train: Train, mode: str) -> None:
    train("mxnet_training.py", mode, ranks=2, python=str(PYTHON)).passed(2)


@pytest.mark.parametrize("ranks", [1, 3])
def test_what_cannot_be_exchanged_is_refused(train: Train, ranks: int) -> None:
    train("mxnet_faults.py", ranks=ranks, python=str(PYTHON)).passed(ranks)


def test_ranks_that_stop_early_may_join(train: Train) -> None:
    train("mxnet_steps.py", "join", ranks=2, python=str(PYTHON)).passed(2)


@pytest.mark.parametrize(("then", "words"), [("end", "ended"), ("metric", "Mismatched")])
def test_differing_numbers_of_steps_end_with_an_error(train: Train, then: str, words: str) -> None:
    ended = train("mxnet_steps.py", then, ranks=2, python=str(PYTHON), timeout=60)
    assert ended.code not in (0, 124), ended.out + ended.err
    assert "ringleader.engine.exceptions." in ended.err and words in ended.err, ended.err


@pytest.mark.parametrize("ranks", [2])
def test_the_example_learns_digits(train: Train, ranks: int) -> None:
    ended = train(
        "../../../examples/mxnet_mnist.py", "--check-equal", ranks=ranks, python=str(PYTHON), timeout=300
    )
    assert ended.code == 0, ended.out + ended.err
    lines = ended.out.splitlines()
    accuracy = next(line for line in lines if line.startswith("[0] test accuracy: "))
    assert float(accuracy.split()[3].rstrip("%")) > 95
    hashes = {line.split(": ")[1] for line in lines if "parameters of rank" in line}
    assert len(hashes) == 1, lines


def test_the_example_names_what_is_wrong_with_its_data(train: Train, tmp_path: Path) -> None:
    ended = train(
        "../../../examples/mxnet_mnist.py", "--data-dir", str(tmp_path), ranks=2, python=str(PYTHON)
    )
    assert ended.code == 1 and "no t10k-images-idx3-ubyte" in ended.err, ended.err
