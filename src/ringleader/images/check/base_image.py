"""Rules: the base, the images of CUDA, the Python of the image and of Ringleader. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from ringleader.finding import Finding, fault, gone, note, warning
from ringleader.images.base_image import find_base, find_cuda_image
from ringleader.images.check.version_lookup import Seen
from ringleader.images.tables.version_order import at_least, matches, series

KEY_FETCHED = "historical recipes fetch 3bf863cc.pub, and trust it, before anything is installed"


def systems(seen: Seen) -> Iterator[Finding]:
    """Yield what does not fit between the base and what stands on it."""
    if seen.base is None:
        what = (
            f"{seen.selection.base or 'the base'} is not in the tables: only what needs no base was checked"
        )
        yield warning("base", what)
    elif seen.base.end_of_life and seen.base.end_of_life <= seen.tables.rule("as-of").value:
        what = f"{seen.base.name} has had no free updates since {seen.base.end_of_life}"
        yield (note if seen.selection.historical else warning)("base-old", what, seen.base.cited())
    yield from _images(seen)
    yield from _python(seen)


def _images(seen: Seen) -> Iterator[Finding]:
    choice = seen.selection
    found = seen.cuda_image
    if choice.cuda and found is None:
        hint = f"a base nvidia/cuda:{choice.cuda}-…, or no block cuda: wheels bring their own"
        yield fault(
            "cuda-base", f"the block cuda stands on an image nvidia/cuda, not on {choice.base}", hint=hint
        )
    elif found and series(found.version) != series(choice.cuda):
        what = f"the block cuda says {choice.cuda}, the base is CUDA {found.version}"
        yield fault("cuda-base", what)
    for reference in dict.fromkeys((choice.base, choice.build_base)):
        yield from _image(seen, reference)


def _image(seen: Seen, reference: str) -> Iterator[Finding]:
    found = find_cuda_image(reference)
    row = seen.tables.cuda_release(found.version) if found else None
    if found is None:
        return
    if row is None:
        if series(found.version) == series(seen.selection.cuda):
            return  # told of the block already
        yield fault("cuda", f"there is no image of CUDA {found.version} that the tables know")
        return
    cited = row.cited()
    system = find_base(reference)
    if row.deleted:
        what = f"{reference} can no longer be pulled"
        if system and system.name not in row.bases:
            what = f"nvidia/cuda {row.cuda} was never on {system.name}, and the others are gone"
        hint = "a copy of your own by digest, or a base with a CUDA that is still there (11.0 and newer)"
        yield gone(seen.selection.historical, "cuda-deleted", what, cited, hint=hint)
        if seen.selection.cudnn or seen.selection.nccl:
            key = seen.tables.rule("cuda-apt-key")
            what = "NVIDIA's apt repository refuses the image until its key is replaced"
            told = note if seen.selection.historical else fault
            yield told("cuda-apt-key", what, key.cited(), hint=KEY_FETCHED)
    elif system and system.name not in row.bases:
        what = f"nvidia/cuda {row.cuda} has no image on {system.name}"
        yield fault("cuda-image", what, cited, hint=f"on {' or '.join(row.bases)}")
    elif not any(matches(tag, found.version) for tag in row.tags):
        what = f"the tables know no tag {found.version} of nvidia/cuda"
        yield warning("cuda-tag", what, cited, hint=f"{', '.join(row.tags)}")


def _python(seen: Seen) -> Iterator[Finding]:
    choice, base = seen.selection, seen.base
    packaged = base and choice.python_source == "base" and choice.python
    if base and packaged and series(choice.python) not in base.pythons:
        what = f"{base.name} packages Python {', '.join(base.pythons)}, not {choice.python}"
        others = [one.name for one in seen.tables.bases if series(choice.python) in one.pythons]
        hint = f'{"the base " + " or ".join(others) + ", or " if others else ""}python.source = "conda"'
        yield fault("base-python", what, base.cited(), hint=hint)
    floor = seen.tables.rule("ringleader-python")
    if choice.has_ringleader and seen.python and not at_least(series(seen.python), floor.value):
        rows = (floor.cited(), *((base.cited(),) if base and not choice.python else ()))
        yield fault("ringleader-python", f"Ringleader does not run under Python {seen.python}", *rows)
