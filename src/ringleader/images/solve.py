"""One full set of versions that fits some constraints: the newest, and always the same one. Pure.

Sets that have what is asked for are tried, the newest first, by the rules of ``check``. The first without a
fault is shown with its sources, or as a recipe.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product

from ringleader.errors import Fault, RequestError
from ringleader.finding import Cited, Finding
from ringleader.images.base_image import find_base
from ringleader.images.blocks.downloads import projects
from ringleader.images.check import BAD, clashes
from ringleader.images.check.selection import Selection, VersionLookup, recipe_of
from ringleader.images.recipe_parser import as_toml
from ringleader.images.tables import Base, Tables, TensorflowRelease
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


@dataclass(frozen=True, kw_only=True)
class Constraints:
    """What the set must have; empty: anything. A version may be the beginning of one: ``2.8``."""

    torch: str = ""
    tensorflow: str = ""
    python: str = ""
    base: str = ""
    cuda: str = ""
    """``none``: for CPUs."""
    nccl: str = ""
    gpu: str = ""
    """Names with commas between."""
    driver: str = ""
    mpi: str = ""
    """``openmpi``, ``mpich``, or with a version: ``openmpi-5.0``."""
    rdma: str = ""
    network: str = ""

    @property
    def gpus(self) -> tuple[str, ...]:
        """Return each GPU."""
        return tuple(name.strip() for name in self.gpu.split(",") if name.strip())

    def given(self) -> dict[str, str]:
        """Return the constraints that are not empty."""
        return {name: value for name in CHECKS if (value := str(getattr(self, name)))}


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
            close = difflib.get_close_matches(name, CHECKS, 1)
            hint = f"did you mean {close[0]}? " if close else ""
            known = ", ".join(CHECKS)
            faults.append(Fault(where=_shown(word), what="unknown word", hint=f"{hint}Known: {known}"))
        elif name in found and name != "gpu":
            faults.append(Fault(where=_shown(word), what=f"{name} is given twice"))
        else:
            fault = CHECKS[name](value.strip(), tables)
            faults += [Fault(where=_shown(word), what=fault[0], hint=fault[1])] if fault else []
            found[name] = ",".join(filter(None, (found.get(name), value.strip())))
    if faults:
        raise RequestError(faults)
    return Constraints(**found)


def _shown(word: str) -> str:
    plain = "".join(one if one.isprintable() else "?" for one in word)
    return plain if len(plain) <= 60 else f"{plain[:59]}…"


Problem = tuple[str, str] | None
"""What is wrong with a value, and a hint."""
Check = Callable[[str, Tables], Problem]
Known = Callable[[Tables], Sequence[str]]
"""What there is of something, by the tables."""


def _version(who: str, value: str, known: Sequence[str], *words: str) -> Problem:
    """Return what is wrong with a version; None where one of the known ones begins so, or it is a word."""
    if value in words:
        return None
    if not key(value) or not value.replace(".", "").isalnum():
        return (f"{value!r} is no version", f"such as {newest(known)}")
    if any(matches(one, value) for one in known):
        return None
    near = ", ".join(nearest(value, known))
    return (f"there is no {who} {value}", f"nearest: {near}; newest: {newest(known)}")


def _versions(who: str, name: str, *words: str) -> Check:
    return lambda value, tables: _version(who, value, tables.known(name), *words)


def _one_of(who: str, known: Known) -> Check:
    def problem(value: str, tables: Tables) -> Problem:
        names = known(tables)
        return None if value in names else (f"unknown {who} {value!r}", f"known: {', '.join(names)}")

    return problem


def _base(value: str, tables: Tables) -> Problem:
    if (found := find_base(value)) is not None and found.name.partition(":")[0] == value.partition(":")[0]:
        return None
    known = ", ".join(row.name for row in tables.bases)
    return (f"{value!r} is no base that the tables know", f"known: {known}")


def _gpu(value: str, tables: Tables) -> Problem:
    known = [row.name for row in tables.gpus]
    wrong = [name for name in value.split(",") if name.strip() and tables.gpu(name.strip()) is None]
    return (f"unknown GPU {', '.join(wrong)}", f"known: {', '.join(known)}") if wrong else None


def _driver(value: str, tables: Tables) -> Problem:
    plain = value.replace(".", "")
    return None if plain.isdigit() and plain.isascii() else (f"{value!r} is no version", "such as 550.54.15")


def _mpi(value: str, tables: Tables) -> Problem:
    kind, _, version = value.partition("-")
    kinds = list(dict.fromkeys(row.kind for row in tables.mpi))
    if kind not in kinds:
        return (f"unknown MPI {kind!r}", f"known: {', '.join(kinds)}, with a version: openmpi-5.0")
    # What is packaged nowhere is compiled: only releases whose checksum is known.
    had = {*projects()[kind].known, *(row.version(kind) for row in tables.packaged.values())}
    known = [one for row in tables.mpi if row.kind == kind for one in row.versions if one in had]
    return _version(kind, version, known) if version else None


CHECKS: dict[str, Check] = {
    "torch": _versions("PyTorch", "torch", NEWEST),
    "tensorflow": _versions("TensorFlow", "tensorflow", NEWEST),
    "python": _versions("Python in the tables", "python"),
    "base": _base,
    "cuda": _versions("CUDA", "cuda", NONE),
    "nccl": _versions("NCCL", "nccl"),
    "gpu": _gpu,
    "driver": _driver,
    "mpi": _mpi,
    "rdma": _one_of("user space", lambda tables: list(tables.user_spaces)),
    "network": _one_of("network", lambda tables: NETWORKS),
}
"""Word → what is wrong with a value of it."""


# --- sets that have what is asked for, newest first, whether or not they fit together ---------------------


@dataclass(frozen=True, kw_only=True)
class Framework:
    """One choice of PyTorch or TensorFlow; an empty version: without it."""

    version: str = ""
    variant: str = ""
    torchvision: str = ""
    image: str = ""
    """The CUDA image that it needs: ``11.8.0-cudnn8-runtime``; empty: it brings its own, or none."""
    behind: int = 0
    """How many series are newer."""


def candidates(constraints: Constraints, tables: Tables) -> Iterator[Selection]:
    """Yield every set that has what was asked for, newest first.

    With both frameworks the newest are those that are together the fewest series behind.
    """
    pairs = product(_torches(constraints, tables), _tensorflows(constraints, tables))
    for torch, tensorflow in sorted(pairs, key=lambda pair: pair[0].behind + pair[1].behind):
        if not torch.version and not tensorflow.version:
            continue
        for base, python, source in _systems(constraints, tables, tensorflow):
            yield _selection(constraints, tables, (torch, tensorflow), (base, python, source))


def _torches(constraints: Constraints, tables: Tables) -> list[Framework]:
    if not constraints.torch and constraints.tensorflow:
        return [Framework()]
    version_asked = "" if constraints.torch in ("", NEWEST) else constraints.torch
    found: list[Framework] = []
    for behind, row in enumerate(reversed(tables.torch)):
        wheels = [one for one in tables.torch_wheels if one.series == row.series]
        wheels.sort(
            key=lambda one: (one.variant == row.variant, bool(one.nccl), key(one.cuda or "0")), reverse=True
        )
        for version, vision in reversed(row.versions):
            for wheel in wheels if matches(version, version_asked) else []:
                fits = (
                    not wheel.cuda
                    if constraints.cuda == NONE
                    else wheel.cuda and matches(wheel.cuda, constraints.cuda)
                )
                if fits and (not constraints.nccl or (wheel.nccl and matches(wheel.nccl, constraints.nccl))):
                    variant = "" if wheel.variant == row.variant else wheel.variant
                    found.append(
                        Framework(version=version, variant=variant, torchvision=vision, behind=behind)
                    )
    return found


def _tensorflows(constraints: Constraints, tables: Tables) -> list[Framework]:
    if not constraints.tensorflow:
        return [Framework()]
    version_asked = "" if constraints.tensorflow == NEWEST else constraints.tensorflow
    return [
        Framework(version=version, image=_image(row, constraints, tables), behind=behind)
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
    decides = constraints.nccl and not constraints.torch
    return cuda and (not decides or bool(row.nccl and matches(row.nccl, constraints.nccl)))


def _image(row: TensorflowRelease, constraints: Constraints, tables: Tables) -> str:
    """Return the CUDA image that a TensorFlow without its own CUDA stands on."""
    release = tables.cuda_release(row.cuda)
    if constraints.cuda == NONE or row.brings_cuda or release is None:
        return ""
    return f"{release.tags[-1]}-cudnn{series(row.cudnn, 1)}-runtime"


def _systems(
    constraints: Constraints, tables: Tables, tensorflow: Framework
) -> Iterator[tuple[Base, str, str]]:
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
    has = row.version(kind) if row else ""
    return bool(has) and matches(has, version)


def _selection(
    constraints: Constraints,
    tables: Tables,
    frameworks: tuple[Framework, Framework],
    system: tuple[Base, str, str],
) -> Selection:
    torch, tensorflow = frameworks
    base, python, source = system
    name = f"nvidia/cuda:{tensorflow.image}-{base.name.replace(':', '')}" if tensorflow.image else base.name
    kind, _, mpi = constraints.mpi.partition("-")
    packaged = tables.packaged.get(base.name)
    built = "" if not mpi or _packages(tables, base, kind, mpi) else _newest_mpi(tables, kind, mpi)
    with_ucx = kind == "openmpi" and (built or (packaged and packaged.ucx))
    cpu = constraints.cuda == NONE
    return Selection(
        base=name,
        build_base=name.replace("-runtime-", "-devel-") if built and tensorflow.image else "",
        python=python,
        python_source=source,
        torch=torch.version,
        torch_variant=torch.variant,
        torchvision=torch.torchvision,
        tensorflow=tensorflow.version,
        tensorflow_gpu=not cpu,
        cuda=tensorflow.image.partition("-")[0],
        gpus=constraints.gpus,
        driver=constraints.driver,
        network=constraints.network,
        mpi=kind,
        mpi_version=built,
        mpi_source="build" if built else "base",
        ucx_source="base" if with_ucx else "",
        rdma=constraints.rdma or USER_SPACES.get(constraints.network, ""),
        has_ringleader=True,
        keys="mounted" if kind else "",
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
    if found is not None:
        return found
    raise RequestError(_why(constraints, tables))


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
    found = _least_bad(some, tables)
    reasons = dict.fromkeys(one.what for one in found)
    rows = dict.fromkeys(str(row) for one in found for row in one.rows)
    if not found:
        rows = dict.fromkeys(str(row) for row in _framework_rows(some, tables))
    text = f"{what}: {'; '.join(reasons)}" if reasons else what
    lines = "".join(f"\n      {row}" for row in rows)
    return Fault(where="", what=f"{text}{lines}", hint=_without(constraints, names, tables))


def _least_bad(constraints: Constraints, tables: Tables) -> list[Finding]:
    """Return the faults of the candidate with the fewest."""
    found = (_bad(one, tables) for one in candidates(constraints, tables))
    return min(found, key=len, default=[])


def _framework_rows(constraints: Constraints, tables: Tables) -> list[Cited]:
    """Return what the frameworks bring, where the constraints exclude each other before any set is made."""
    found: list[Cited] = []
    if constraints.torch:
        known = [
            row.series
            for row in tables.torch
            if any(matches(one, constraints.torch) for one, _ in row.versions)
        ]
        found += [row.cited() for row in tables.torch_wheels if row.series in known[-1:]]
    if constraints.tensorflow:
        rows = [
            row
            for row in tables.tensorflow
            if any(matches(one, constraints.tensorflow) for one in row.versions)
        ]
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
    lists = {
        "torch": [row.series for row in tables.torch],
        "tensorflow": [row.series for row in tables.tensorflow],
    }
    if name in lists:
        known = lists[name]
        version_asked = getattr(constraints, name)
        places = {one: place for place, one in enumerate(known)}
        here = max((place for one, place in places.items() if key(one) <= key(version_asked)), default=0)
        for one in sorted(known, key=lambda one: abs(places[one] - here)):
            rest = _first(replace(constraints, **{name: one}), tables)
            if rest is not None:
                return f"the nearest that fits is {brief(rest)}"
    rest = _first(replace(constraints, **{name: ""}), tables)
    return f"without it: {brief(rest)}" if rest is not None else ""


def brief(selection: Selection) -> str:
    """Return a set in one line."""
    parts = []
    if selection.torch:
        parts.append(
            f"torch={selection.torch}{f' ({selection.torch_variant})' if selection.torch_variant else ''}"
        )
    if selection.tensorflow:
        parts.append(f"tensorflow={selection.tensorflow}")
    parts.append(f"base={selection.base}")
    if selection.python:
        parts.append(f"python={selection.python}")
    return " ".join(parts)


# --- a set as a table and as a recipe ---------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Part:
    """One line of a set."""

    name: str
    version: str
    source: str
    """Of the row that says so; empty: unverified."""


def parts(selection: Selection, tables: Tables) -> tuple[Part, ...]:
    """Return a set's parts with where each is written."""
    lookup = VersionLookup(selection, tables)
    base = lookup.base.cited() if lookup.base else Cited(row="", says="", source="")
    python = f"{lookup.python}{' (conda)' if selection.python_source == 'conda' else ''}"
    found = [
        Part(name="base", version=selection.base, source=base.source),
        Part(name="Python", version=python, source=base.source),
        *_frameworks(lookup),
        *_transport(lookup),
    ]
    minimums = [row for need in lookup.needs if (row := tables.driver(need.cuda))]
    if minimums:
        row = max(minimums, key=lambda row: key(row.floor))
        found.append(Part(name="NVIDIA driver", version=f">= {row.floor}", source=row.source))
    for name in selection.gpus:
        gpu = tables.gpu(name)
        if gpu:
            version = f"{gpu.name} (compute capability {gpu.capability})"
            found.append(Part(name="GPU", version=version, source=gpu.source))
    return tuple(found)


def _frameworks(lookup: VersionLookup) -> list[Part]:
    choice, found = lookup.selection, []
    wheel, row = lookup.torch_wheel, lookup.tensorflow
    if wheel and lookup.torch_release:
        source = lookup.torch_release.source
        found.append(Part(name="PyTorch", version=f"{choice.torch} ({lookup.torch_variant})", source=source))
        found.append(Part(name="torchvision", version=choice.torchvision, source=source))
        own = (("CUDA", wheel.cuda), ("cuDNN", wheel.cudnn), ("NCCL", wheel.nccl))
        found += [Part(name=name, version=version, source=wheel.source) for name, version in own if version]
    if row:
        found.append(Part(name="TensorFlow", version=choice.tensorflow, source=row.source))
        own = (("CUDA", row.cuda), ("cuDNN", row.cudnn), ("NCCL", row.nccl))
        if choice.tensorflow_gpu and not (wheel and wheel.cuda):
            more = ">= " if row.cuda_below else ""
            found += [
                Part(name=name, version=f"{more}{version}", source=row.source)
                for name, version in own
                if version
            ]
    return found


def _transport(lookup: VersionLookup) -> list[Part]:
    choice, packaged, found = lookup.selection, lookup.packaged, []
    source = packaged.source if packaged else ""
    if choice.mpi:
        row = lookup.tables.mpi_series(choice.mpi, choice.mpi_version) if choice.mpi_version else None
        version = choice.mpi_version or (packaged.version(choice.mpi) if packaged else "")
        found.append(Part(name=choice.mpi, version=version, source=row.source if row else source))
    if choice.ucx_source and packaged:
        found.append(Part(name="ucx", version=packaged.ucx, source=source))
    space = lookup.tables.user_spaces.get(choice.rdma)
    if space:
        version = packaged.rdma_core if packaged and choice.rdma == "rdma-core" else "newest"
        own = source if choice.rdma == "rdma-core" else space.source
        found.append(Part(name=choice.rdma, version=version, source=own))
    return found


def recipe_text(selection: Selection, constraints: str) -> str:
    """Return a recipe with the set, as TOML that ``ringleader image check`` accepts."""
    variant = f"-{selection.torch_variant}" if selection.torch_variant else ""
    names = [f"pytorch-{selection.torch}{variant}"] if selection.torch else []
    names += [f"tensorflow-{selection.tensorflow}"] if selection.tensorflow else []
    recipe = recipe_of(selection, "-".join(names).lower())
    return "\n".join([f"# ringleader image solve {constraints}", *as_toml(recipe)]) + "\n"
