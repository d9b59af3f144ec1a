"""Idx files as MNIST has them, and a message for each way in which they can be broken."""

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from digits import BadDataError, load


def idx(array: np.ndarray) -> bytes:
    """An idx file of unsigned bytes."""
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def some_digits(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Random images (count, 28, 28) and labels (count,), unsigned bytes."""
    dice = np.random.default_rng(count)
    return dice.integers(0, 256, (count, 28, 28), np.uint8), dice.integers(0, 10, count, np.uint8)


def write(folder: Path, part: str, count: int, *, packed: bool) -> tuple[np.ndarray, np.ndarray]:
    """Write images and labels of one part, packed with gzip or not."""
    images, labels = some_digits(count)
    for name, array in ((f"{part}-images-idx3-ubyte", images), (f"{part}-labels-idx1-ubyte", labels)):
        data = idx(array)
        (folder / f"{name}.gz" if packed else folder / name).write_bytes(
            gzip.compress(data) if packed else data
        )
    return images, labels


def test_t10k_alone_is_split(tmp_path: Path) -> None:
    images, labels = write(tmp_path, "t10k", 500, packed=True)
    digits = load(tmp_path)
    assert digits.train_images.shape == (400, 1, 28, 28) and digits.test_images.shape == (100, 1, 28, 28)
    found = np.concatenate([digits.train_images, digits.test_images])[:, 0] * 0.3081 + 0.1307
    restored = (found * 255).round().astype(np.uint8)
    pairs = zip(restored, np.concatenate([digits.train_labels, digits.test_labels]).tolist(), strict=True)
    assert sorted((image.tobytes(), label) for image, label in pairs) == sorted(
        (image.tobytes(), label) for image, label in zip(images, labels.tolist(), strict=True)
    )
    shares = np.bincount(digits.test_labels, minlength=10) / np.bincount(labels, minlength=10)
    assert np.abs(shares - 0.2).max() < 0.03


def test_all_of_mnist(tmp_path: Path) -> None:
    _, train = write(tmp_path, "train", 30, packed=True)
    _, test = write(tmp_path, "t10k", 20, packed=False)
    digits = load(tmp_path)
    assert digits.train_labels.tolist() == train.tolist()
    assert digits.test_labels.tolist() == test.tolist()


IMAGES, LABELS = "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"
BROKEN = {
    "cut": (IMAGES, lambda data: data[:-1], f"{IMAGES}: its header promises 39200 bytes, 39199 follow it"),
    "too long": (LABELS, lambda data: data + b"x", f"{LABELS}: its header promises 50 bytes, 51 follow it"),
    "empty": (IMAGES, lambda data: b"", f"{IMAGES}: not an idx file"),
    "header cut": (IMAGES, lambda data: data[:9], f"{IMAGES}: ends inside its header, after 9 bytes"),
    "page": (IMAGES, lambda data: b"<html>", "begins with 3c68746d"),
    "other size": (IMAGES, lambda data: idx(np.zeros((50, 8, 8), np.uint8)), "images of 8x8 pixels"),
    "fewer labels": (LABELS, lambda data: idx(np.zeros(49, np.uint8)), "49 labels for the 50 images"),
    "label 11": (LABELS, lambda data: idx(np.full(50, 11, np.uint8)), "label 11; digits are 0 to 9"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_named_with_its_fault(tmp_path: Path, name: str) -> None:
    write(tmp_path, "t10k", 50, packed=False)
    file, spoil, message = BROKEN[name]
    (tmp_path / file).write_bytes(spoil((tmp_path / file).read_bytes()))
    with pytest.raises(BadDataError) as caught:
        load(tmp_path)
    assert message in str(caught.value) and str(tmp_path) in str(caught.value)


def test_a_broken_gzip_file_is_named(tmp_path: Path) -> None:
    write(tmp_path, "t10k", 50, packed=True)
    path = tmp_path / f"{IMAGES}.gz"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(BadDataError, match=rf"{IMAGES}.gz: cannot be read"):
        load(tmp_path)


def test_a_folder_without_the_files_says_which(tmp_path: Path) -> None:
    with pytest.raises(BadDataError, match=rf"{tmp_path}: no {IMAGES} and no {LABELS}"):
        load(tmp_path)
    with pytest.raises(BadDataError, match="nowhere: no such directory"):
        load(tmp_path / "nowhere")
