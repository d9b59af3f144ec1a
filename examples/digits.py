"""Handwritten digits for the MNIST examples: MNIST's idx files, or the 1,797 that scikit-learn carries."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

UNSIGNED_BYTE = 0x08
MEAN, DEVIATION = 0.1307, 0.3081  # of MNIST's training pixels


class BadDataError(Exception):
    """The data is missing or broken; the message names the file and the fault."""


@dataclass(frozen=True, kw_only=True)
class Digits:
    """Images (n, 1, 28, 28) float32, normalized, and labels (n,) int64 from 0 to 9: arrays, or tensors."""

    name: str
    """Where they come from, for people."""
    train_images: Any
    train_labels: Any
    test_images: Any
    test_labels: Any

    def converted(self, convert: Callable[[np.ndarray], Any]) -> Digits:
        """Return the same digits as tensors of a framework, of which ``convert`` makes one from an array."""
        return Digits(
            name=self.name,
            train_images=convert(self.train_images),
            train_labels=convert(self.train_labels),
            test_images=convert(self.test_images),
            test_labels=convert(self.test_labels),
        )


def load(data_dir: Path | None) -> Digits:
    """Read MNIST from ``data_dir``, or scikit-learn's digits where it is None.

    A directory that holds only the t10k files is split by `split`: 8,000 to train, 2,000 to test.
    """
    if data_dir is None:
        return split("scikit-learn's digits", *sklearn_digits())
    if not data_dir.is_dir():
        raise BadDataError(f"{data_dir}: no such directory; --data-dir wants the one with MNIST's idx files")
    if find(data_dir, "train-images-idx3-ubyte") is None:
        return split("MNIST t10k, split", *pair(data_dir, "t10k"))
    train, test = pair(data_dir, "train"), pair(data_dir, "t10k")
    return Digits(
        name="MNIST", train_images=train[0], train_labels=train[1], test_images=test[0], test_labels=test[1]
    )


def split(name: str, images: np.ndarray, labels: np.ndarray) -> Digits:
    """Sort by digit and keep every fifth image for the test: a fifth of each digit, always the same."""
    test = np.zeros(len(labels), dtype=bool)
    test[labels.argsort(kind="stable")[4::5]] = True
    return Digits(
        name=name,
        train_images=images[~test],
        train_labels=labels[~test],
        test_images=images[test],
        test_labels=labels[test],
    )


def sklearn_digits() -> tuple[np.ndarray, np.ndarray]:
    """Return 1,797 images of 8x8, enlarged three times and framed, so that one net fits both sources."""
    try:
        from sklearn.datasets import load_digits
    except ModuleNotFoundError:
        raise BadDataError("without --data-dir the digits come from scikit-learn: pip install scikit-learn")
    data = load_digits()
    images = data.images.astype(np.float32)[:, None] / 16
    large = np.pad(images.repeat(3, axis=2).repeat(3, axis=3), ((0, 0), (0, 0), (2, 2), (2, 2)))
    return (large - MEAN) / DEVIATION, data.target.astype(np.int64)


def pair(data_dir: Path, part: str) -> tuple[np.ndarray, np.ndarray]:
    """Read the images and labels of ``train`` or ``t10k``."""
    names = (f"{part}-images-idx3-ubyte", f"{part}-labels-idx1-ubyte")
    paths = [find(data_dir, name) for name in names]
    missing = [name for name, path in zip(names, paths, strict=True) if path is None]
    if missing:
        raise BadDataError(f"{data_dir}: no {' and no '.join(missing)} (with or without .gz)")
    image_path, label_path = (path for path in paths if path is not None)
    images, labels = read_idx(image_path, dimensions=3), read_idx(label_path, dimensions=1)
    if images.shape[1:] != (28, 28):
        raise BadDataError(
            f"{image_path}: images of {images.shape[1]}x{images.shape[2]} pixels; MNIST's are 28x28"
        )
    if len(images) != len(labels):
        raise BadDataError(f"{label_path}: {len(labels)} labels for the {len(images)} images of {image_path}")
    if labels.max() > 9:
        raise BadDataError(f"{label_path}: label {labels.max()}; digits are 0 to 9")
    pixels = images.astype(np.float32)[:, None] / 255
    return (pixels - MEAN) / DEVIATION, labels.astype(np.int64)


def find(data_dir: Path, name: str) -> Path | None:
    """Return the plain file, else the compressed one, else None."""
    return next((path for path in (data_dir / name, data_dir / f"{name}.gz") if path.is_file()), None)


def read_idx(path: Path, *, dimensions: int) -> np.ndarray:
    """Read one idx file of unsigned bytes: 0, 0, type, number of dimensions; their lengths; the bytes."""
    try:
        raw = path.read_bytes()
        data = gzip.decompress(raw) if path.suffix == ".gz" else raw
    except (OSError, EOFError, zlib.error) as error:
        raise BadDataError(f"{path}: cannot be read: {error}")
    start = 4 + 4 * dimensions
    if data[:4] != bytes([0, 0, UNSIGNED_BYTE, dimensions]):
        raise BadDataError(
            f"{path}: not an idx file of unsigned bytes in {dimensions} dimensions "
            f"(it begins with {data[:4].hex() or 'nothing'})"
        )
    if len(data) < start:
        raise BadDataError(f"{path}: ends inside its header, after {len(data)} bytes")
    shape = struct.unpack(f">{dimensions}I", data[4:start])
    if 0 in shape:
        raise BadDataError(f"{path}: its header says {shape}: nothing to read")
    if len(data) - start != math.prod(shape):
        raise BadDataError(
            f"{path}: its header promises {math.prod(shape)} bytes, {len(data) - start} follow it"
        )
    return np.frombuffer(data, dtype=np.uint8, offset=start).reshape(shape)
