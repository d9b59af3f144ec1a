"""What a directory of training data holds, seen by names alone: pictures by class, or MNIST's digits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

PICTURE_ENDINGS = (".jpg", ".jpeg", ".png", ".webp", ".bmp")
IMAGES, LABELS = "images-idx3-ubyte", "labels-idx1-ubyte"


class DataError(Exception):
    """Data is missing, broken, or of a kind that the model does not take; the message names the file."""


@dataclass(frozen=True, kw_only=True)
class DataFiles:
    """What was found."""

    kind: str
    """``pictures`` or ``mnist``."""
    files: tuple[tuple[str, int], ...]
    """Pictures and their labels; of MNIST the file of images and that of labels, or one npz, with 0."""
    classes: tuple[str, ...] = ()
    """Names of the pictures' classes, by label."""


def find_data(path: str, takes: tuple[str, ...]) -> DataFiles:
    """Return what a directory (or an npz file) holds of what a model takes. DataError says what is wrong."""
    place = Path(path)
    try:
        if place.is_file() and place.suffix == ".npz":
            found: DataFiles | None = DataFiles(kind="mnist", files=((str(place), 0),))
        elif not place.is_dir():
            raise DataError(f"{path} is not a directory")
        else:
            found = _mnist(place) or _pictures(place)
    except OSError as error:
        raise DataError(f"{error.filename or path} cannot be read: {error.strerror}") from None
    if found is None:
        what = " or ".join(
            {"pictures": "CLASS/*.jpg", "mnist": "MNIST's idx or npz files"}[kind] for kind in takes
        )
        raise DataError(f"{path} holds no {what}")
    if found.kind not in takes:
        raise DataError(f"{path} holds {found.kind}; the model takes {' or '.join(takes)}")
    return found


def _mnist(place: Path) -> DataFiles | None:
    for part in ("train", "t10k"):
        files = [_plain_or_gz(place, f"{part}-{name}") for name in (IMAGES, LABELS)]
        if all(files):
            return DataFiles(kind="mnist", files=tuple((str(file), 0) for file in files))
        if any(files):
            missing = next(name for name, file in zip((IMAGES, LABELS), files, strict=True) if file is None)
            raise DataError(f"{place} holds no {part}-{missing} (with or without .gz)")
    packed = sorted(place.glob("*.npz"))
    return DataFiles(kind="mnist", files=((str(packed[0]), 0),)) if packed else None


def _plain_or_gz(place: Path, name: str) -> Path | None:
    return next((file for file in (place / name, place / f"{name}.gz") if file.is_file()), None)


def _pictures(place: Path) -> DataFiles | None:
    """Look for CLASS/*.jpg, in ``train`` where there is such a directory; labels by the order of names."""
    root = place / "train" if (place / "train").is_dir() else place
    classes = sorted(entry.name for entry in root.iterdir() if entry.is_dir() and entry.name[0] != ".")
    files = [
        (str(file), label)
        for label, name in enumerate(classes)
        for file in sorted((root / name).iterdir())
        if file.suffix.lower() in PICTURE_ENDINGS
    ]
    return DataFiles(kind="pictures", files=tuple(files), classes=tuple(classes)) if files else None
