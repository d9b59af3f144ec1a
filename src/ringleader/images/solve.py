"""One full set of versions that fits some constraints: the newest, and always the same one. Pure.

Sets that have what is asked for are tried, the newest first, by the rules of ``check``. The first without a
fault is shown with its sources, or as a recipe.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import combinations, product
from typing import Any, NamedTuple

from ringleader.errors import Fault, RequestError, did_you_mean, refuse
from ringleader.finding import Cited, Finding
from ringleader.images.base_image import find_base
from ringleader.images.blocks.downloads import projects
from ringleader.images.check import BAD, clashes
from ringleader.images.check.selection import Selection, VersionLookup, recipe_of
from ringleader.images.recipe_parser import as_toml
from ringleader.images.tables import Base, Tables, TensorflowRelease, TorchWheel
from ringleader.images.tables.version_order import at_least, key, matches, nearest, newest, series

NEWEST = "newest"
NONE = "none"
NETWORKS = ("infiniband", "roce", "efa", "erdma", "tcp")
PREFERRED = ("ubuntu:24.04", "debian:13", "debian:12", "ubuntu:22.04", "ubuntu:26.04")
"""Bases in the order in which they are tried: first where the vendors' user spaces install too."""
USER_SPACES = {"infiniband": "rdma-core", "roce": "rdma-core", "efa": "efa", "erdma": "erdma"}
"""Network → the user space that a set gets where none was asked for."""
CONDA_PYTHON = "3.12"
"""What conda brings where the base that was asked for packages no Python that fits."""

# --- constraints ------------------------------------------------------------------------------------------


Problem = tuple[str, str] | None
"""What is wrong with a value, and a hint."""
Check = Callable[[str, Tables], Problem]


def _version(who: str, value: str, known: Sequence[str], *words: str) -> Problem:
    """Return what is wrong with a version; None where one of the known ones begins so, or it is a word."""
    if value in words:
        return None
    if not key(value) or not value.replace(".", "").isalnum():
        return (f"{value!r} is not a version", f"such as {newest(known)}")
    if any(matches(one, value) for one in known):
        return None
    near = ", ".join(nearest(value, known))
    return (f"there is no {who} {value}", f"nearest: {near}; newest: {newest(known)}")


def _versions(who: str, name: str, *words: str) -> Check:
    return lambda value, tables: _version(who, value, tables.known(name), *words)


def _name(who: str, value: str, known: Collection[str]) -> Problem:
    return None if value in known else (f"unknown {who} {value!r}", f"known: {', '.join(known)}")


def _base(value: str, tables: Tables) -> Problem:
    if (found := find_base(value)) is not None and found.name.partition(":")[0] == value.partition(":")[0]:
        return None
    known = ", ".join(row.name for row in tables.bases)
    return (f"{value!r} is not a base that the tables know", f"known: {known}")


def _gpu(value: str, tables: Tables) -> Problem:
    known = [row.name for row in tables.gpus]
    wrong = [name for name in value.split(",") if name.strip() and tables.gpu(name.strip()) is None]
    return (f"unknown GPU {', '.join(wrong)}", f"known: {', '.join(known)}") if wrong else None


def _driver(value: str, tables: Tables) -> Problem:
    plain = value.replace(".", "")
    return (
        None if plain.isdigit() and plain.isascii() else (f"{value!r} is not a version", "such as 550.54.15")
    )


def _mpi(value: str, tables: Tables) -> Problem:
    kind, _, version = value.partition("-")
    kinds = list(dict.fromkeys(row.kind for row in tables.mpi))
    if kind not in kinds:
        return (f"unknown MPI {kind!r}", f"known: {', '.join(kinds)}, with a version: openmpi-5.0")
    # What is packaged nowhere is compiled: only releases whose checksum is known.
    had = {*projects()[kind].known, *(row.version(kind) for row in tables.packaged.values())}
    known = [one for row in tables.mpi if row.kind == kind for one in row.versions if one in had]
    return _version(kind, version, known) if version else None


def _checked_by(check: Check) -> Any:
    return field(default="", metadata={"check": check})


@dataclass(frozen=True, kw_only=True)
class Constraints:
    """What the set must have; empty: anything. A version may be the beginning of one: ``2.8``."""

    torch: str = _checked_by(_versions("PyTorch", "torch", NEWEST))
    tensorflow: str = _checked_by(_versions("TensorFlow", "tensorflow", NEWEST))
    python: str = _checked_by(_versions("Python in the tables", "python"))
    base: str = _checked_by(_base)
    cuda: str = _checked_by(_versions("CUDA", "cuda", NONE))
    """``none``: for CPUs."""
    nccl: str = _checked_by(_versions("NCCL", "nccl"))
    gpu: str = _checked_by(_gpu)
    """Names with commas between."""
    driver: str = _checked_by(_driver)
    mpi: str = _checked_by(_mpi)
    """``openmpi``, ``mpich``, or with a version: ``openmpi-5.0``."""
    rdma: str = _checked_by(lambda value, tables: _name("user space", value, tables.user_spaces))
    network: str = _checked_by(lambda value, tables: _name("network", value, NETWORKS))

    @property
    def gpus(self) -> tuple[str, ...]:
        """Return each GPU."""
        return tuple(name.strip() for name in self.gpu.split(",") if name.strip())

    def given(self) -> dict[str, str]:
        """Return the constraints that are not empty."""
        return {name: value for name in CHECKS if (value := str(getattr(self, name)))}


CHECKS: Mapping[str, Check] = {one.name: one.metadata["check"] for one in fields(Constraints)}
"""Word → what is wrong with a value of it."""


def parse(words: Iterable[str], tables: Tables) -> Constraints:
    """Return the constraints that words such as ``torch=2.8`` make; RequestError with every fault."""
    faults: list[Fault] = []
    found: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not value.strip():
            what = "is not NAME=VALUE"
            faults.append(Fault(where=_shown(word), what=what, hint="such as torch=2.8 gpu=h100"))
        elif name not in CHECKS:
            hint = f"{did_you_mean(name, CHECKS)} Known: {', '.join(CHECKS)}".strip()
            faults.append(Fault(where=_shown(word), what="unknown word", hint=hint))
        elif name in found and name != "gpu":
            faults.append(Fault(where=_shown(word), what=f"{name} is given twice"))
        else:
            fault = CHECKS[name](value.strip(), tables)
            faults += [Fault(where=_shown(word), what=fault[0], hint=fault[1])] if fault else []
            found[name] = ",".join(filter(None, (found.get(name), value.strip())))
    refuse(faults)
    return Constraints(**found)


def _shown(word: str) -> str:
    plain = "".join(one if one.isprintable() else "?" for one in word)
    return plain if len(plain) <= 60 else f"{plain[:59]}…"


# --- sets that have what is asked for, newest first, whether or not they fit together ---------------------


Choice = tuple[int, Mapping[str, Any]]
"""How many series are newer, and fields of a selection. TensorFlow without its own CUDA has ``image`` too:
the CUDA image on which it stands, ``11.8.0-cudnn8-runtime``."""


def candidates(constraints: Constraints, tables: Tables) -> Iterator[Selection]:
    """Yield every set that has what was asked for, newest first.

    With both frameworks the newest are those that are together the fewest series behind.
    """
    pairs = product(_torches(constraints, tables), _tensorflows(constraints, tables))
    for (_, torch), (_, tensorflow) in sorted(pairs, key=lambda pair: pair[0][0] + pair[1][0]):
        if torch or tensorflow:
            for base, python, source in _systems(constraints, tables):
                system = {"python": python, "python_source": source}
                yield _selection(constraints, tables, base, {**torch, **tensorflow, **system})


def _torches(constraints: Constraints, tables: Tables) -> list[Choice]:
    if not constraints.torch and constraints.tensorflow:
        return [(0, {})]
    version_asked = "" if constraints.torch in ("", NEWEST) else constraints.torch
    found: list[Choice] = []
    for behind, row in enumerate(reversed(tables.torch)):
        wheels = [one for one in tables.torch_wheels if one.series == row.series]
        wheels.sort(
            key=lambda one: (one.variant == row.variant, bool(one.nccl), key(one.cuda or "0")), reverse=True
        )
        variants = [
            "" if wheel.variant == row.variant else wheel.variant
            for wheel in wheels
            if (not wheel.cuda if constraints.cuda == NONE else _has(wheel.cuda, constraints.cuda))
            and (not constraints.nccl or _has(wheel.nccl, constraints.nccl))
        ]
        found += (
            (behind, {"torch": version, "torch_variant": variant, "torchvision": vision})
            for version, vision in reversed(row.versions)
            if matches(version, version_asked)
            for variant in variants
        )
    return found


def _has(version: str, asked: str) -> bool:
    return bool(version) and matches(version, asked)


def _tensorflows(constraints: Constraints, tables: Tables) -> list[Choice]:
    if not constraints.tensorflow:
        return [(0, {})]
    version_asked = "" if constraints.tensorflow == NEWEST else constraints.tensorflow
    return [
        (behind, {"tensorflow": version, "image": _image(row, constraints, tables)})
        for behind, row in enumerate(reversed(tables.tensorflow))
        if _takes(row, constraints)
        for version in reversed(row.versions)
        if matches(version, version_asked)
    ]


def _takes(row: TensorflowRelease, constraints: Constraints) -> bool:
    """Tell whether a TensorFlow can have the CUDA and, where it decides, the NCCL that were asked for."""
    if constraints.cuda in ("", NONE):
        cuda = True
    elif row.cuda_below:
        cuda = at_least(constraints.cuda, row.cuda) and not at_least(constraints.cuda, row.cuda_below)
    else:
        cuda = matches(row.cuda, constraints.cuda)
    return cuda and (not constraints.nccl or bool(constraints.torch) or _has(row.nccl, constraints.nccl))


def _image(row: TensorflowRelease, constraints: Constraints, tables: Tables) -> str:
    """Return the CUDA image that a TensorFlow without its own CUDA stands on."""
    release = tables.cuda_release(row.cuda)
    if constraints.cuda == NONE or row.brings_cuda or release is None:
        return ""
    return f"{release.tags[-1]}-cudnn{series(row.cudnn, 1)}-runtime"


def _systems(constraints: Constraints, tables: Tables) -> Iterator[tuple[Base, str, str]]:
    """Yield bases with a Python and where it comes from: packaged ones first, conda where none fits."""
    asked_base = find_base(constraints.base) if constraints.base else None
    bases = (
        [base for name in PREFERRED if (base := tables.base(name))] if asked_base is None else [asked_base]
    )
    kind, _, version = constraints.mpi.partition("-")
    space = tables.user_spaces.get(constraints.rdma or USER_SPACES.get(constraints.network, ""))
    bases.sort(key=lambda base: space is not None and base.name not in space.bases)
    if version:
        bases.sort(key=lambda base: not _packages(tables, base, kind, version))
    packaged = False
    for base in bases:
        for python in sorted(base.pythons, key=lambda one: (one == base.python, key(one)), reverse=True):
            if matches(python, constraints.python):
                packaged = True
                yield base, "" if python == base.python else python, "base"
    if asked_base is not None or not packaged:
        yield bases[0], constraints.python or CONDA_PYTHON, "conda"


def _packages(tables: Tables, base: Base, kind: str, version: str) -> bool:
    row = tables.packaged.get(base.name)
    return row is not None and _has(row.version(kind), version)


def _selection(constraints: Constraints, tables: Tables, base: Base, choices: dict[str, Any]) -> Selection:
    image = choices.pop("image", "")
    name = f"nvidia/cuda:{image}-{base.name.replace(':', '')}" if image else base.name
    kind, _, mpi = constraints.mpi.partition("-")
    packaged = tables.packaged.get(base.name)
    built = "" if not mpi or _packages(tables, base, kind, mpi) else _newest_mpi(tables, kind, mpi)
    with_ucx = kind == "openmpi" and (built or (packaged and packaged.ucx))
    return Selection(
        base=name,
        build_base=name.replace("-runtime-", "-devel-") if built and image else "",
        tensorflow_gpu=constraints.cuda != NONE,
        cuda=image.partition("-")[0],
        gpus=constraints.gpus,
        driver=constraints.driver,
        network=constraints.network,
        mpi=kind,
        mpi_version=built,
        mpi_source="build" if built else "base",
        ucx_source="base" if with_ucx else "",
        rdma=constraints.rdma or USER_SPACES.get(constraints.network, ""),
        has_ringleader=True,
        **choices,
    )


def _newest_mpi(tables: Tables, kind: str, version_asked: str) -> str:
    """Return the newest release that can be built: one whose checksum is known, if there is any."""
    listed = [one for row in tables.mpi if row.kind == kind for one in row.versions]
    known = [one for one in listed if matches(one, version_asked)]
    return newest([one for one in known if one in projects()[kind].known] or known)


# --- the first one that fits, or why there is none --------------------------------------------------------


def solve(constraints: Constraints, tables: Tables) -> Selection:
    """Return the first set that fits. RequestError: which constraints clash, by which rows, and what fits."""
    found = _first(constraints, tables)
    if found is None:
        raise RequestError(_why(constraints, tables))
    return found


def _first(constraints: Constraints, tables: Tables) -> Selection | None:
    return next((one for one in candidates(constraints, tables) if not _bad(one, tables)), None)


def _bad(selection: Selection, tables: Tables) -> list[Finding]:
    """Return what speaks against a set: faults, and a second CUDA, which works but nobody asks for."""
    found = clashes(selection, tables)
    return [one for one in found if one.level in BAD or one.where == "image-cuda"]


def _why(constraints: Constraints, tables: Tables) -> Fault:
    """Return the first one, two or three constraints that nothing fits, and what fits without one."""
    given = tuple(constraints.given())
    for count in (1, 2, 3):
        for names in combinations(given, count):
            if _first(_only(constraints, names), tables) is None:
                return _clash(constraints, names, tables)
    return _clash(constraints, given, tables)


def _only(constraints: Constraints, names: tuple[str, ...]) -> Constraints:
    return Constraints(**{name: value for name, value in constraints.given().items() if name in names})


def _clash(constraints: Constraints, names: tuple[str, ...], tables: Tables) -> Fault:
    some = _only(constraints, names)
    words = " and ".join(f"{name}={value}" for name, value in some.given().items())
    what = f"{words} do not go together" if len(names) > 1 else f"nothing fits {words}"
    # The faults of the candidate with the fewest.
    found = min((_bad(one, tables) for one in candidates(some, tables)), key=len, default=[])
    reasons = dict.fromkeys(one.what for one in found)
    rows = dict.fromkeys(str(row) for one in found for row in one.rows)
    if not found:
        rows = dict.fromkeys(str(row) for row in _framework_rows(some, tables))
    text = f"{what}: {'; '.join(reasons)}" if reasons else what
    lines = "".join(f"\n      {row}" for row in rows)
    return Fault(where="", what=f"{text}{lines}", hint=_without(constraints, names, tables))


def _framework_rows(constraints: Constraints, tables: Tables) -> list[Cited]:
    """Return what the frameworks bring, where the constraints exclude each other before any set is made."""
    found: list[Cited] = []
    if constraints.torch:
        asked = [row for row in tables.torch if any(_has(one, constraints.torch) for one, _ in row.versions)]
        newest = [row.series for row in asked[-1:]]
        found += [row.cited() for row in tables.torch_wheels if row.series in newest]
    if constraints.tensorflow:
        asked_of = constraints.tensorflow
        rows = [row for row in tables.tensorflow if any(_has(one, asked_of) for one in row.versions)]
        found += [row.cited() for row in rows[-1:]]
    return found


def _without(constraints: Constraints, names: tuple[str, ...], tables: Tables) -> str:
    """Return what fits without one of the constraints that clash, or next to the only one."""
    if len(names) == 1:
        return _next_to(constraints, names[0], tables)
    found: list[str] = []
    for name in reversed(names):
        rest = _first(replace(constraints, **{name: ""}), tables)
        if rest is not None:
            found.append(f"without {name}={getattr(constraints, name)}: {brief(rest)}")
    if not found and set(names) != set(constraints.given()):
        return _without(_only(constraints, names), names, tables)
    return "\n      or ".join(found)


def _next_to(constraints: Constraints, name: str, tables: Tables) -> str:
    """Return the nearest series of a framework that something fits; for others what fits without."""
    if name in ("torch", "tensorflow"):
        known = [row.series for row in getattr(tables, name)]
        asked = key(getattr(constraints, name))
        here = max((place for place, one in enumerate(known) if key(one) <= asked), default=0)
        for one in sorted(known, key=lambda one: abs(known.index(one) - here)):
            rest = _first(replace(constraints, **{name: one}), tables)
            if rest is not None:
                return f"the nearest that fits is {brief(rest)}"
    rest = _first(replace(constraints, **{name: ""}), tables)
    return f"without it: {brief(rest)}" if rest is not None else ""


def brief(selection: Selection) -> str:
    """Return a set in one line."""
    variant = f" ({selection.torch_variant})" if selection.torch_variant else ""
    named = (
        *(("torch", selection.torch + variant), ("tensorflow", selection.tensorflow)),
        *(("base", selection.base), ("python", selection.python)),
    )
    return " ".join(f"{name}={value}" for name, value in named if value)


# --- a set as a table and as a recipe ---------------------------------------------------------------------


class Part(NamedTuple):
    """One line of a set."""

    name: str
    version: str
    source: str
    """Of the row that says so; empty: unverified."""


def parts(selection: Selection, tables: Tables) -> Iterator[Part]:
    """Yield a set's parts with where each is written."""
    lookup = VersionLookup(selection, tables)
    source = lookup.base.source if lookup.base else ""
    python = f"{lookup.python}{' (conda)' if selection.python_source == 'conda' else ''}"
    yield from (Part("base", selection.base, source), Part("Python", python, source))
    yield from (*_frameworks(lookup), *_transport(lookup))
    minimums = [row for need in lookup.needs if (row := tables.driver(need.cuda))]
    if minimums:
        row = max(minimums, key=lambda row: key(row.floor))
        yield Part("NVIDIA driver", f">= {row.floor}", row.source)
    for gpu in filter(None, map(tables.gpu, selection.gpus)):
        yield Part("GPU", f"{gpu.name} (compute capability {gpu.capability})", gpu.source)


def _frameworks(lookup: VersionLookup) -> Iterator[Part]:
    choice, wheel, row = lookup.selection, lookup.torch_wheel, lookup.tensorflow
    if wheel and lookup.torch_release:
        source = lookup.torch_release.source
        yield Part("PyTorch", f"{choice.torch} ({lookup.torch_variant})", source)
        yield Part("torchvision", choice.torchvision, source)
        yield from _brought(wheel)
    if row:
        yield Part("TensorFlow", choice.tensorflow, row.source)
        if choice.tensorflow_gpu and not (wheel and wheel.cuda):
            yield from _brought(row, ">= " if row.cuda_below else "")


def _brought(row: TorchWheel | TensorflowRelease, more: str = "") -> Iterator[Part]:
    for name, version in (("CUDA", row.cuda), ("cuDNN", row.cudnn), ("NCCL", row.nccl)):
        if version:
            yield Part(name, f"{more}{version}", row.source)


def _transport(lookup: VersionLookup) -> Iterator[Part]:
    choice, packaged = lookup.selection, lookup.packaged
    source = packaged.source if packaged else ""
    if choice.mpi:
        row = lookup.tables.mpi_series(choice.mpi, choice.mpi_version) if choice.mpi_version else None
        version = choice.mpi_version or (packaged.version(choice.mpi) if packaged else "")
        yield Part(choice.mpi, version, row.source if row else source)
    if choice.ucx_source and packaged:
        yield Part("ucx", packaged.ucx, source)
    space = lookup.tables.user_spaces.get(choice.rdma)
    if space and choice.rdma == "rdma-core":
        yield Part(choice.rdma, packaged.rdma_core if packaged else "newest", source)
    elif space:
        yield Part(choice.rdma, "newest", space.source)


def recipe_text(selection: Selection, constraints: str) -> str:
    """Return a recipe with the set, as TOML that ``ringleader image check`` accepts."""
    variant = f"-{selection.torch_variant}" if selection.torch_variant else ""
    names = [f"pytorch-{selection.torch}{variant}"] if selection.torch else []
    names += [f"tensorflow-{selection.tensorflow}"] if selection.tensorflow else []
    recipe = recipe_of(selection, "-".join(names).lower())
    return "\n".join([f"# ringleader image solve {constraints}", *as_toml(recipe)]) + "\n"
