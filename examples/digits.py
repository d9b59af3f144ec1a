"""Handwritten digits for mnist.py: MNIST's idx files, or the 1,797 digits that scikit-learn carries."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

UNSIGNED_BYTE = 0x08
MEAN, DEVIATION = 0.1307, 0.3081  # of MNIST's training pixels


class BadDataError(Exception):
    """The data is missing or broken; the message names the file and the fault."""


@dataclass(frozen=True, kw_only=True)
class Digits:
    """Images (n, 1, 28, 28) float32, normalised, and labels (n,) int64 from 0 to 9."""

    name: str
    """Where they come from, for people."""
    train_images: torch.Tensor
    train_labels: torch.Tensor
    test_images: torch.Tensor
    test_labels: torch.Tensor


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


def split(name: str, images: torch.Tensor, labels: torch.Tensor) -> Digits:
    """Sort by digit and keep every fifth image for the test: a fifth of each digit, always the same."""
    test = torch.zeros(len(labels), dtype=torch.bool)
    test[labels.argsort(stable=True)[4::5]] = True
    return Digits(
        name=name,
        train_images=images[~test],
        train_labels=labels[~test],
        test_images=images[test],
        test_labels=labels[test],
    )


def sklearn_digits() -> tuple[torch.Tensor, torch.Tensor]:
    """Return 1,797 images of 8x8, enlarged three times and framed, so that one net fits both sources."""
    try:
        from sklearn.datasets import load_digits
    except ModuleNotFoundError:
        raise BadDataError("without --data-dir the digits come from scikit-learn: pip install scikit-learn")
    data = load_digits()
    images = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1) / 16
    large = functional.pad(functional.interpolate(images, scale_factor=3), (2, 2, 2, 2))
    return (large - MEAN) / DEVIATION, torch.tensor(data.target, dtype=torch.int64)


def pair(data_dir: Path, part: str) -> tuple[torch.Tensor, torch.Tensor]:
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
    pixels = torch.from_numpy(images.astype(np.float32)).unsqueeze(1) / 255
    return (pixels - MEAN) / DEVIATION, torch.from_numpy(labels.astype(np.int64))


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
