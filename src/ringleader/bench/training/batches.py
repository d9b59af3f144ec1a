"""Batches of one rank by the number of the step: every variant sees the same ones."""

from __future__ import annotations

import gzip
import zipfile
import zlib
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from ringleader.bench.training.data_folder import DataError, DataFiles, find_data
from ringleader.bench.training.models import WIDTH, WORDS
from ringleader.bench.training.training_plan import MODELS, SYNTHETIC, TrainingPlan

Batch = tuple[torch.Tensor, torch.Tensor]
"""Inputs and targets, on the rank's device."""
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Of ImageNet's pixels, by color."""
SYNTHETIC_BATCHES = 2
"""This many different ones, again and again."""


class Batches(Protocol):
    """Where a rank's batches come from."""

    def of(self, step: int) -> Batch:
        """Return the batch of a step; DataError names what cannot be read."""
        ...


class SyntheticBatches:
    """Random ones, made before the first step, on the device."""

    def __init__(self, plan: TrainingPlan, rank: int, device: torch.device) -> None:
        """Make them; each rank has its own."""
        generator = torch.Generator().manual_seed(plan.seed + 1 + rank)
        made = (self._make(plan, generator) for _ in range(SYNTHETIC_BATCHES))
        self._batches = [(x.to(device), y.to(device)) for x, y in made]

    @staticmethod
    def _make(plan: TrainingPlan, generator: torch.Generator) -> Batch:
        if plan.seq_len:
            words = torch.randint(0, WORDS, (plan.batch, plan.seq_len + 1), generator=generator)
            return words[:, :-1].contiguous(), words[:, 1:].contiguous()
        size = plan.image_size
        colors = 1 if plan.model == "mnist" else 3
        shape = (plan.batch, colors, size, size) if size else (plan.batch, WIDTH)
        targets = torch.randint(0, plan.num_classes, (plan.batch,), generator=generator)
        return torch.randn(shape, generator=generator), targets

    def of(self, step: int) -> Batch:
        """See `Batches`."""
        return self._batches[step % SYNTHETIC_BATCHES]


class DigitBatches:
    """MNIST, held in memory."""

    def __init__(
        self, files: DataFiles, plan: TrainingPlan, rank: int, size: int, device: torch.device
    ) -> None:
        """Read the files. DataError names one that is broken."""
        images, labels = read_digits([Path(path) for path, _label in files.files])
        if labels.max() >= plan.num_classes:
            raise DataError(f"{files.files[-1][0]}: label {labels.max()} with {plan.num_classes} classes")
        self._images, self._labels = images, labels
        self._numbers = _Numbers(len(labels), plan.batch, rank, size)
        self._device = device

    def of(self, step: int) -> Batch:
        """See `Batches`."""
        mine = self._numbers.of(step)
        pixels = torch.from_numpy(self._images[mine]).float().div_(255).unsqueeze_(1)
        return pixels.to(self._device), torch.from_numpy(self._labels[mine]).to(self._device)


class PictureBatches:
    """Pictures of a folder, read and cut by threads, one batch ahead."""

    def __init__(
        self, files: DataFiles, plan: TrainingPlan, rank: int, size: int, device: torch.device
    ) -> None:
        """Read nothing yet. DataError where pictures cannot be read here at all."""
        try:
            import PIL.Image  # noqa: F401
        except ImportError:
            raise DataError("reading pictures needs Pillow: pip install pillow") from None
        if len(files.classes) > plan.num_classes:
            what = f"{len(files.classes)} classes in {plan.data}"
            raise DataError(f"{what}, and --num-classes {plan.num_classes}")
        self._files, self._device, self._size = files.files, device, plan.image_size
        self._numbers = _Numbers(len(files.files), plan.batch, rank, size)
        self._readers = ThreadPoolExecutor(plan.readers, thread_name_prefix="pictures")
        self._ahead: dict[int, list[Future[np.ndarray[Any, Any]]]] = {}

    def of(self, step: int) -> Batch:
        """See `Batches`."""
        if step not in self._ahead:  # another variant is trained
            self._ahead.clear()
            self._read(step)
        self._read(step + 1)
        pixels = np.stack([one.result() for one in self._ahead.pop(step)])
        mean, deviation = (torch.tensor(v, device=self._device).view(3, 1, 1) for v in (MEAN, DEVIATION))
        pictures = torch.from_numpy(pixels).to(self._device).permute(0, 3, 1, 2).float().div_(255)
        labels = torch.tensor([self._files[number][1] for number in self._numbers.of(step)])
        return ((pictures - mean) / deviation).contiguous(), labels.to(self._device)

    def _read(self, step: int) -> None:
        if step not in self._ahead:
            paths = [self._files[number][0] for number in self._numbers.of(step)]
            self._ahead[step] = [self._readers.submit(read_picture, path, self._size) for path in paths]


class _Numbers:
    """Which samples are in which step: ranks take turns, and begin anew at the end."""

    def __init__(self, count: int, batch: int, rank: int, size: int) -> None:
        self._count, self._batch, self._rank, self._size = count, batch, rank, size

    def of(self, step: int) -> np.ndarray[Any, Any]:
        first = (step * self._size + self._rank) * self._batch
        return np.arange(first, first + self._batch) % self._count


def read_picture(path: str, size: int) -> np.ndarray[Any, Any]:
    """Return the middle square of a picture as (size, size, 3) bytes. DataError where it cannot be read."""
    from PIL import Image

    try:
        with Image.open(path) as file:
            picture = file.convert("RGB")
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise DataError(f"{path}: cannot be read as a picture: {str(error).split(' <')[0]}") from None
    width, height = picture.size
    side = min(width, height)
    left, top = (width - side) / 2, (height - side) / 2
    box = (left, top, left + side, top + side)
    return np.array(picture.resize((size, size), Image.Resampling.BILINEAR, box=box))


def read_digits(paths: Sequence[Path]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return images (n, 28, 28) bytes and labels (n,) int64 from idx files or one npz. DataError names it."""
    images, labels = _npz(paths[0]) if len(paths) == 1 else (_idx(paths[0], 3), _idx(paths[1], 1))
    if images.shape[1:] != (28, 28) or images.dtype != np.uint8:
        raise DataError(f"{paths[0]}: {images.dtype} {images.shape}, MNIST's are bytes (n, 28, 28)")
    if (
        len(images) == 0
        or labels.shape != (len(images),)
        or labels.dtype.kind not in "iu"
        or labels.min() < 0
    ):
        raise DataError(
            f"{paths[-1]}: {labels.dtype} {labels.shape} is not one label for each of {len(images)} images"
        )
    return images, labels.astype(np.int64)


def _npz(path: Path) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return arrays["x_train"], arrays["y_train"]
    except KeyError:
        raise DataError(f"{path}: has no x_train and y_train, as MNIST's npz has") from None
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{path}: cannot be read: {error}") from None


def _idx(path: Path, dimensions: int) -> np.ndarray[Any, Any]:
    """Read one idx file: 0, 0, type 8 (bytes), dimensions; their lengths, big endian; the bytes."""
    try:
        raw = path.read_bytes()
        data = gzip.decompress(raw) if path.suffix == ".gz" else raw
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: cannot be read: {error}") from None
    start = 4 + 4 * dimensions
    if len(data) < start or data[:4] != bytes((0, 0, 8, dimensions)):
        raise DataError(f"{path}: is not an idx file of bytes with {dimensions} dimensions")
    shape = tuple(int.from_bytes(data[at : at + 4], "big") for at in range(4, start, 4))
    if len(data) - start != int(np.prod(shape, dtype=np.int64)):
        raise DataError(f"{path}: {len(data) - start} bytes for {shape}")
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)


def open_batches(plan: TrainingPlan, rank: int, size: int, device: torch.device) -> Batches:
    """Return the plan's batches. DataError says what is missing or broken."""
    if plan.data == SYNTHETIC:
        return SyntheticBatches(plan, rank, device)
    files = find_data(plan.data, MODELS[plan.model].data)
    kind = PictureBatches if files.kind == "pictures" else DigitBatches
    return kind(files, plan, rank, size, device)
