"""Training from JPEGs: it learns, it resumes to the bit, it names a picture that is broken."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from jpegs import BadDataError, Loader, Pictures

pytestmark = [pytest.mark.torch, pytest.mark.timeout(600)]

COLORS = {"blue": (40, 40, 200), "green": (40, 200, 40), "red": (200, 40, 40)}
TINY = ("--model", "resnet18", "--image-size", 32, "--batch-size", 4, "--warmup-epochs", 0, "--workers", 1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Noisy pictures of three colors and various sizes: 8 a class to train, 3 to judge with."""
    root = tmp_path_factory.mktemp("a folder of pictures")
    dice = np.random.default_rng(0)
    for part, count in (("train", 8), ("val", 3)):
        for name, color in COLORS.items():
            (root / part / name).mkdir(parents=True)
            for number in range(count):
                height, width = dice.integers(40, 80, 2)
                pixels = np.clip(dice.normal(color, 40, (height, width, 3)), 0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(root / part / name / f"{number}.jpg")
    return root


def test_classes_and_labels_follow_the_names(folder: Path) -> None:
    pictures = Pictures(folder / "train", size=32, seed=1)
    assert pictures.classes == ["blue", "green", "red"] and len(pictures) == 24
    for index, label in ((0, 0), (8, 1), (23, 2)):
        pixels, found = pictures[0, index]
        assert found == label and pixels.shape == (3, 32, 32) and pixels.dtype == torch.float32
        brightest = pixels.mean(dim=(1, 2)).argmax().item()
        assert ("red", "green", "blue")[brightest] == pictures.classes[label]


def test_cuts_depend_on_seed_epoch_and_picture_alone(folder: Path) -> None:
    first = Pictures(folder / "train", size=32, seed=1)
    again, other = Pictures(folder / "train", size=32, seed=1), Pictures(folder / "train", size=32, seed=2)
    assert torch.equal(first[3, 5][0], again[3, 5][0])
    assert not torch.equal(first[3, 5][0], first[4, 5][0])
    assert not torch.equal(first[3, 5][0], other[3, 5][0])
    judged = Pictures(folder / "val", size=32, seed=None)
    assert torch.equal(judged[0, 2][0], judged[7, 2][0]), "always cut alike"


def spoiled(folder: Path, copy: Path) -> Path:
    """A copy of the folder in which one picture to train with is cut short."""
    for path in folder.rglob("*.jpg"):
        new = copy / path.relative_to(folder)
        new.parent.mkdir(parents=True, exist_ok=True)
        new.write_bytes(path.read_bytes())
    broken = copy / "train" / "green" / "3.jpg"
    broken.write_bytes(broken.read_bytes()[:200])
    return broken


def test_a_broken_picture_is_named(folder: Path, tmp_path: Path) -> None:
    broken = spoiled(folder, tmp_path)
    loader = Loader(Pictures(tmp_path / "train", size=32, seed=1), workers=1, pin=False)
    with pytest.raises(BadDataError) as caught:
        list(loader.batches(0, [list(range(24))]))
    assert str(caught.value).startswith(f"{broken}: cannot be read as a picture: ")


@pytest.mark.long
@pytest.mark.mpi
def test_a_broken_picture_ends_the_job_with_its_name(run: Callable, folder: Path, tmp_path: Path) -> None:
    broken = spoiled(folder, tmp_path)
    words = (*TINY, "--data-dir", tmp_path, "--epochs", 1)
    ended = run("imagenet_folder.py", *words, ranks=2, fails=True, launched=True)
    assert ended.code == 1
    assert ended.errors.count(f"{broken}: cannot be read as a picture") == 1
    assert "Traceback" not in ended.errors


@pytest.mark.long
@pytest.mark.mpi
def test_two_ranks_learn_and_resume_to_the_bit(run: Callable, folder: Path, tmp_path: Path) -> None:
    """One epoch and then another give what two epochs give: state, order, cuts and rates are all resumed."""
    words = (*TINY, "--data-dir", folder)
    straight = run(
        "imagenet_folder.py", *words, "--epochs", 2, "--checkpoint", tmp_path / "straight.pt", ranks=2
    )
    parts = (*words, "--checkpoint", tmp_path / "parts.pt", "--resume")
    first = run("imagenet_folder.py", *parts, "--epochs", 1, ranks=2)
    second = run("imagenet_folder.py", *parts, "--epochs", 2, ranks=2)
    assert first.lines[0] == "[0] 24 + 9 pictures, 3 classes, 2 rank(s)"
    assert second.lines[0] == "[0] 24 + 9 pictures, 3 classes, 2 rank(s), resumed after epoch 1"
    losses = [re.match(r"\[0\] epoch (\d): loss ([\d.]+), ", line) for line in straight.lines[1:]]
    assert [match and match[1] for match in losses] == ["1", "2"]
    assert (
        second.line("[0] epoch 2: loss ").split(",")[0] == straight.line("[0] epoch 2: loss ").split(",")[0]
    )
    one, two = (torch.load(tmp_path / name, weights_only=True) for name in ("straight.pt", "parts.pt"))
    assert one["epoch"] == two["epoch"] == 2 and one["classes"] == ["blue", "green", "red"]
    for name, tensor in one["parameters"].items():
        assert torch.equal(tensor, two["parameters"][name]), name


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("content", "message"),
    [(b"not a checkpoint", "net.pt: cannot be resumed from: "), (None, "it is of resnet50")],
)
def test_a_wrong_checkpoint_is_told_once(
    run: Callable, folder: Path, tmp_path: Path, content: bytes | None, message: str
) -> None:
    file = tmp_path / "net.pt"
    if content is None:
        torch.save({"model": "resnet50", "classes": [], "parameters": {}, "optimizer": {}, "epoch": 1}, file)
    else:
        file.write_bytes(content)
    words = (*TINY, "--data-dir", folder, "--checkpoint", file, "--resume")
    ended = run("imagenet_folder.py", *words, ranks=2, fails=True)
    assert ended.errors.count(message) == 1 and "Traceback" not in ended.errors


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (None, "train: no such directory"),
        ("train/red", "train: no picture in any sub-folder"),
        ("val/red", "train and val differ in their classes: blue"),
    ],
)
def test_a_wrong_folder_is_told_once(
    run: Callable, folder: Path, tmp_path: Path, spoil: str | None, message: str
) -> None:
    if spoil:
        for name in ("train/red", "train/blue", "val/red", "val/blue"):
            (tmp_path / name).mkdir(parents=True)
            if spoil == "val/red" and name != "val/blue":
                (tmp_path / name / "0.jpg").write_bytes((folder / "train" / "red" / "0.jpg").read_bytes())
    if spoil == "val/red":
        (tmp_path / "val" / "blue").rmdir()
    ended = run("imagenet_folder.py", *TINY, "--data-dir", tmp_path, ranks=1, fails=True)
    assert ended.errors.count(message) == 1 and "Traceback" not in ended.errors
