"""Facts become findings, in a fixed order: first what is installed. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from ringleader.doctor.environment_findings import place
from ringleader.doctor.image_facts import Facts, Library, Module
from ringleader.finding import Finding, fault, passed, skipped, warning

DRIVER_NAMES = ("libcuda.so", "libnvidia-")
"""Beginnings of the names of libraries that the host's driver brings."""
REBUILD = "build the image again"
FRAMEWORKS = ("torch", "tensorflow", "mxnet", "horovod")


def judge(facts: Facts) -> tuple[Finding, ...]:
    """Return one finding for each check."""
    return (
        _manifest(facts),
        passed("python", f"{facts.python} ({facts.executable}), Ringleader {facts.ringleader}"),
        *(found for name in FRAMEWORKS if (found := _framework(facts, name)) is not None),
        *_gpu_libraries(facts),
        *_mpi(facts),
        *_fabric(facts),
        _linked(facts),
        *place(facts),
    )


def _manifest(facts: Facts) -> Finding:
    if facts.manifest_error:
        return fault(
            "image", f"what the image says of itself cannot be read: {facts.manifest_error}", hint=REBUILD
        )
    if facts.manifest is None:
        return skipped("image", "it says nothing of itself; what is there is looked at")
    blocks = ", ".join(facts.manifest.get("blocks", {}))
    digest = str(facts.manifest.get("recipe", ""))[:19]
    return passed("image", f"{facts.manifest.get('name')} of recipe {digest}: {blocks}")


def _framework(facts: Facts, name: str) -> Finding | None:
    block, module = facts.block(name), facts.module(name)
    claimed = block is not None or (name == "tensorflow" and facts.block("tensorflow-source") is not None)
    if not module.installed:
        return fault(name, "the image claims it, and it is not installed", hint=REBUILD) if claimed else None
    if module.error:
        if any(driver in module.error for driver in DRIVER_NAMES):
            return skipped(name, f"{module.installed} needs the host's GPU driver to load: {module.error}")
        return fault(name, f"{module.installed} cannot be loaded: {module.error}", hint=REBUILD)
    wanted = str((block or {}).get("version", ""))
    if wanted and not same_version(wanted, module.installed):
        return fault(name, f"{module.installed} is installed, the image claims {wanted}", hint=REBUILD)
    return passed(name, _described(module))


def _described(module: Module) -> str:
    words = [module.version or module.installed]
    cuda = module.details.get("cuda")
    names = (("CUDA", "cuda"), ("cuDNN", "cudnn"), ("NCCL", "nccl"))
    words += [f"{name} {module.details[key]}" for name, key in names if module.details.get(key)]
    if "gpus" in module.details:
        words.append(f"{module.details['gpus']} GPUs here" if cuda else "for CPUs")
    return ", ".join(words)


def same_version(wanted: str, installed: str) -> bool:
    """Say whether an installed version is the wanted one, its local part (``+cu128``) and zeros aside."""
    asked, there = _parts(wanted), _parts(installed)
    length = max(len(asked), len(there))
    return there[: len(asked)] == asked or _filled(asked, length) == _filled(there, length)


def _filled(parts: list[str], length: int) -> list[str]:
    return parts + ["0"] * (length - len(parts))


def _parts(version: str) -> list[str]:
    return version.partition("+")[0].split(".")


def _gpu_libraries(facts: Facts) -> Iterator[Finding]:
    """Yield what is there of CUDA's world: the driver, and which NCCL is really loaded."""
    driver = facts.library("libcuda.so.1")
    for_gpus = any(facts.module(name).details.get("cuda") for name in FRAMEWORKS) or any(
        facts.block(name) is not None for name in ("cuda", "nccl")
    )
    if for_gpus or driver.path:
        if driver.path:
            yield passed("driver", f"the host's driver is here: {driver.path}")
        else:
            yield skipped("driver", "no GPU driver here (libcuda.so.1): nothing was run on a GPU")
    yield from _nccl(facts, for_gpus=for_gpus)


def _nccl(facts: Facts, *, for_gpus: bool) -> Iterator[Finding]:
    of_modules = {
        path: name for name in FRAMEWORKS for path in facts.module(name).libraries if "libnccl.so" in path
    }
    by_name = facts.library("libnccl.so.2")
    if of_modules:
        path, name = next(iter(of_modules.items()))
        version = facts.module(name).details.get("nccl", "")
        beside = [other for other in facts.system_nccl if other != path]
        what = f"{name} loads {version or 'NCCL'} from {path}"
        if beside:
            hint = "it serves programs outside of Python only (nccl-tests, Horovod); keep both of one version"
            yield warning("nccl", f"{what}; a second one lies beside it: {', '.join(beside)}", hint=hint)
        else:
            yield passed("nccl", what)
    elif by_name.path:
        yield passed("nccl", f"{by_name.version} ({by_name.path})")
    elif facts.block("nccl") is not None:
        yield fault("nccl", f"the image claims it: {by_name.error}", hint=REBUILD)
    elif for_gpus:
        yield warning("nccl", "no framework has loaded one, and the system has none")


def _mpi(facts: Facts) -> Iterator[Finding]:
    """Yield which MPI starts ranks, and which one mpi4py loads: two different things."""
    mpi, module = facts.mpi, facts.module("mpi4py")
    claimed = facts.block("mpi") or {}
    if not mpi.family:
        yield fault("mpi", f"nothing here starts ranks: {mpi.error}", hint="add the block mpi to the recipe")
    else:
        what = f"{mpi.family} {mpi.version} ({mpi.mpirun})"
        kind, version = str(claimed.get("kind", "")), str(claimed.get("version", ""))
        if kind and not mpi.family.startswith(kind):
            yield fault("mpi", f"{what} is found, the image claims {kind}", hint=REBUILD)
        elif version and not same_version(version.rpartition(":")[2].partition("-")[0], mpi.version):
            yield fault("mpi", f"{what} is found, the image claims {version}", hint=REBUILD)
        else:
            yield passed("mpi", what)
    if not module.installed:
        yield fault("mpi4py", "it is not installed", hint="pip install 'mpi4py>=4.1,<5'")
    elif module.error:
        yield fault("mpi4py", f"{module.installed} cannot be loaded: {module.error}", hint=REBUILD)
    else:
        yield _mpi_library(facts, module)


def _mpi_library(facts: Facts, module: Module) -> Finding:
    loads = next((path for path in module.libraries if "/libmpi" in path), "")
    what = f"{module.version} loads {module.details.get('library', '')[:60].partition(',')[0]} ({loads})"
    starts = facts.mpi.library
    if starts and loads and not _same_file(starts, loads):
        hint = "jobs of `ringleader run` get the right one; with a bare mpirun set MPI4PY_LIBMPI"
        return warning("mpi4py", f"{what}, but mpirun belongs to {starts}", hint=hint)
    return passed("mpi4py", what)


def _same_file(one: str, other: str) -> bool:
    """Say whether two paths may be one library, whatever links and /lib for /usr/lib make of them."""
    first, second = (path.rpartition("/")[2].split(".so")[0] for path in (one, other))
    places = [path.rpartition("/")[0].removeprefix("/usr") for path in (one, other)]
    return first == second and (places[0] in places[1] or places[1] in places[0])


def _fabric(facts: Facts) -> Iterator[Finding]:
    """Yield the libraries by which MPI and NCCL reach a NIC."""
    rdma = facts.block("rdma") is not None
    yield _library(facts.library("libucp.so.0"), "ucx", claimed=facts.block("ucx"))
    yield _library(facts.library("libfabric.so.1"), "libfabric", claimed=facts.block("libfabric"))
    verbs = facts.library("libibverbs.so.1")
    found = _library(verbs, "libibverbs", claimed={} if rdma else None)
    yield found
    if verbs.path:
        names = ", ".join(facts.providers)
        if names:
            yield passed("providers", names)
        else:
            hint = "install ibverbs-providers: without one no NIC is found"
            yield (fault if rdma else warning)("providers", "libibverbs has no provider", hint=hint)


def _library(library: Library, id: str, *, claimed: object | None) -> Finding:
    if not library.path:
        if claimed is None:
            return skipped(id, "the system has none")
        return fault(id, f"the image claims it: {library.error}", hint=REBUILD)
    wanted = str(claimed.get("version", "")) if isinstance(claimed, dict) else ""
    what = f"{library.version} ({library.path})"
    if wanted and library.version and not _agrees(wanted, library.version):
        return fault(id, f"{what} is found, the image claims {wanted}", hint=REBUILD)
    return passed(id, what)


def _agrees(wanted: str, found: str) -> bool:
    """Say whether versions agree as far as the library tells its own: libfabric says two numbers of three."""
    ours, theirs = _parts(wanted.rpartition(":")[2].partition("-")[0]), _parts(found)
    shortest = min(len(ours), len(theirs))
    return ours[:shortest] == theirs[:shortest]


def _linked(facts: Facts) -> Finding:
    """Return what ldd does not find; what the driver brings, or an optional plug-in needs, is no fault."""
    if facts.ldd_error:
        return skipped("libraries", facts.ldd_error)
    faults: list[str] = []
    optional: list[str] = []
    driver = False
    for file, lacks in facts.missing.items():
        names = [name for name in lacks if not name.startswith(DRIVER_NAMES)]
        driver = driver or len(names) < len(lacks)
        if names:
            (optional if is_optional(file) else faults).append(f"{file}: {', '.join(names)}")
    count = f"{facts.looked_at} looked at"
    if faults:
        return fault("libraries", f"{_some(faults)} not found ({count})", hint="install what they need")
    if optional:
        return warning("libraries", f"plug-ins that will not load: {_some(optional)} not found ({count})")
    return passed("libraries", f"{count}, nothing missing" + (" but the host's driver" if driver else ""))


def is_optional(file: str) -> bool:
    """Say whether a library is loaded only where what it needs is there, as plug-ins are."""
    return any(part in file for part in ("/openmpi", "/ucx/", "/nvidia/", "/libibverbs/"))


def _some(texts: list[str], most: int = 4) -> str:
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return "; ".join(texts[:most]) + more
