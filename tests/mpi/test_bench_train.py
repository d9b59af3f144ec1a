"""``ringleader bench train`` on real ranks: every arm of a CPU, equal weights, a profile for predict."""

from pathlib import Path

import pytest

from ringleader.bench import run_file
from ringleader.cli.main import main
from ringleader.measurements.training import TrainingRun

pytestmark = [pytest.mark.mpi, pytest.mark.torch]


def train(directory: Path, *words: str) -> int:
    options = "-n 2 --oversubscribe --device cpu --name t --repeats 2 --steps 3 --warmup 1"
    return call("bench", "train", *options.split(), "-o", str(directory), *words)


def call(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    return int(ended.value.code or 0)


def stored(directory: Path) -> TrainingRun:
    run = run_file.read_any(directory / "t")
    assert isinstance(run, TrainingRun)
    return run


@pytest.mark.long
def test_all_arms_of_a_cpu(tmp_path, capsys):
    assert train(tmp_path, "--model", "mnist", "--batch", "2") == 0
    shown, run = capsys.readouterr().out, stored(tmp_path)
    measured = [arm.name for arm in run.arms if arm.rates]
    assert measured == ["ringleader", "ringleader-sharded", "ddp-gloo", "uncoupled", "in step"]
    assert len(run.alone.rates) == 2
    assert "ddp-nccl: NCCL needs a GPU" in shown and not run.failure
    for arm in run.arms:
        assert len(arm.rates) == len(arm.splits) == (2 if arm.name in measured else 0)
    assert run.arm("uncoupled").split.exchange == 0 < run.arm("ddp-gloo").split.exchange
    assert run.parameters == 225_034 and run.gradient_bytes == 4 * run.parameters
    assert [layer.name for layer in run.layers] == ["0", "3", "7", "9"]
    assert sum(layer.bytes for layer in run.layers) == run.gradient_bytes
    assert call("predict", str(tmp_path / "t" / "profile.toml"), "--ranks", "1,2,4") == 0
    assert "measured" in capsys.readouterr().out


@pytest.mark.long
def test_what_a_rank_cannot_do_is_refused_with_words(tmp_path, capsys):
    arms = ("--arms", "ringleader-sharded,ddp-nccl", "--batch", "2")
    code = train(tmp_path, *arms)
    said = capsys.readouterr().err
    assert (
        code == 2 and "--arms: ddp-nccl: NCCL needs a GPU" in said and not (tmp_path / "t/run.json").exists()
    )


@pytest.mark.long
def test_lines_of_tf_cnn_benchmarks(tmp_path, capsys):
    words = ("--batch", "2", "--format", "tf_cnn", "-n", "1", "--steps", "5")
    assert train(tmp_path, "--model", "mnist", *words) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[1] == "Step\tImg/sec\ttotal_loss" and shown[3].startswith("10\timages/sec: ")
    assert shown[5].startswith("total images/sec: ")
