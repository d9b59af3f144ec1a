"""A folder of pictures as training batches: DIR/train/CLASS/*.jpg and DIR/val/CLASS/*.jpg.

Pictures are read, cut and normalized in worker processes while the net trains. How a worker cuts and flips a
picture depends on the seed, the epoch and the picture alone: any number of ranks and workers, and a run that
was resumed, see the same pixels.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

ENDINGS = {".jpg", ".jpeg", ".png", ".webp", ".bmp"}
MEAN, DEVIATION = torch.tensor((0.485, 0.456, 0.406)), torch.tensor((0.229, 0.224, 0.225))
Key = tuple[int, int]
"""(epoch, number of the picture)."""
Batch = tuple[torch.Tensor, torch.Tensor]
"""Pictures (n, 3, size, size) float32, normalized, and labels (n,) int64."""


class BadDataError(Exception):
    """The folder or a picture is missing or broken; the message names it."""


class Pictures(Dataset):
    """The pictures below one folder; a class is a sub-folder, its label the sub-folder's place by name."""

    def __init__(self, folder: Path, *, size: int, seed: int | None) -> None:
        """With a ``seed`` pictures are cut and flipped at random, without they are cut from the middle."""
        if not folder.is_dir():
            raise BadDataError(f"{folder}: no such directory; --data-dir wants train/CLASS and val/CLASS")
        self.size, self.seed = size, seed
        self.classes = sorted(entry.name for entry in folder.iterdir() if entry.is_dir())
        self.files = [
            (path, label)
            for label, name in enumerate(self.classes)
            for path in sorted((folder / name).iterdir())
            if path.suffix.lower() in ENDINGS
        ]
        if not self.files:
            raise BadDataError(f"{folder}: no picture in any sub-folder ({', '.join(sorted(ENDINGS))})")

    def __len__(self) -> int:
        """Return the number of pictures."""
        return len(self.files)

    def __getitem__(self, key: Key) -> tuple[torch.Tensor, int] | BadDataError:
        """Return one picture (3, size, size) and its label; a fault as a value, see `collate`."""
        epoch, index = key
        path, label = self.files[index]
        try:
            with Image.open(path) as file:
                picture = file.convert("RGB")
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
            return BadDataError(f"{path}: cannot be read as a picture: {str(error).split(' <')[0]}")
        if self.seed is None:
            picture = middle(picture, self.size)
        else:
            picture = random_cut(picture, self.size, random.Random(f"{self.seed} {epoch} {index}"))
        pixels = torch.from_numpy(np.array(picture)).float() / 255
        return ((pixels - MEAN) / DEVIATION).permute(2, 0, 1), label


def random_cut(picture: Image.Image, size: int, dice: random.Random) -> Image.Image:
    """Cut 8 to 100% of the area at an aspect of 3:4 to 4:3, resize it, mirror half of them.

    The cut of Szegedy et al. (2014), which ImageNet's published results are trained with.
    """
    width, height = picture.size
    box = None
    for _ in range(10):
        area = width * height * dice.uniform(0.08, 1)
        aspect = math.exp(dice.uniform(math.log(3 / 4), math.log(4 / 3)))
        wide, high = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < wide <= width and 0 < high <= height:
            left, top = dice.randint(0, width - wide), dice.randint(0, height - high)
            box = (left, top, left + wide, top + high)
            break
    cut = picture.resize((size, size), Image.Resampling.BILINEAR, box=box)
    return cut.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if dice.random() < 0.5 else cut


def middle(picture: Image.Image, size: int) -> Image.Image:
    """Cut the middle square, 7/8 of the shorter side (224 of 256), and resize it."""
    width, height = picture.size
    side = min(width, height) * 7 / 8
    left, top = (width - side) / 2, (height - side) / 2
    return picture.resize((size, size), Image.Resampling.BILINEAR, box=(left, top, left + side, top + side))


def collate(samples: list[tuple[torch.Tensor, int] | BadDataError]) -> Batch | BadDataError:
    """Stack samples; a fault is handed on as a value: raised here it would arrive as a traceback's text."""
    for sample in samples:
        if isinstance(sample, BadDataError):
            return sample
    pictures, labels = zip(*samples, strict=True)
    return torch.stack(pictures), torch.tensor(labels)


class Loader:
    """Batches of pictures, read ahead by ``workers`` processes (0: read by this one)."""

    def __init__(self, pictures: Pictures, *, workers: int, pin: bool) -> None:
        """``pin`` puts batches into page-locked memory, from which a GPU copies while it computes."""
        self.keys: list[list[Key]] = []
        # Workers are spawned, not forked: a forked child would share this process's MPI, its registered
        # memory and its network queues, and a library's lock held by another thread would stay held. They
        # persist, so that the second it takes to start them is spent once and not in every epoch.
        self.loader = DataLoader(
            pictures,
            batch_sampler=self,
            collate_fn=collate,
            num_workers=workers,
            multiprocessing_context="spawn" if workers else None,
            persistent_workers=workers > 0,
            prefetch_factor=2 if workers else None,
            pin_memory=pin,
        )

    def __iter__(self) -> Iterator[list[Key]]:
        """Yield the keys of each batch: this is the DataLoader's batch sampler."""
        return iter(self.keys)

    def __len__(self) -> int:
        """Return the number of batches."""
        return len(self.keys)

    def batches(self, epoch: int, indices: Iterable[list[int]]) -> Iterator[Batch]:
        """Yield the pictures of each list of indices, in order; `BadDataError` names a broken one."""
        self.keys = [[(epoch, index) for index in batch] for batch in indices]
        for batch in self.loader:
            if isinstance(batch, BadDataError):
                raise batch
            yield batch
