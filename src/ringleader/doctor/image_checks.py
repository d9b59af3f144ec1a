"""What the facts of an image, or of this machine, come to: what is in it, whether ranks start. Pure.

``image_facts`` has the values, ``image_inspection`` collects them by loading and starting things.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from ringleader.doctor.image_facts import Facts, Module
from ringleader.fabric.check_result import CheckResult, failed, listed, passed, skipped, warned
from ringleader.fabric.checks.check import Found, results_of
from ringleader.fabric.checks.host import ENOUGH_LOCKED_MEMORY

DRIVER_NAMES = ("libcuda.so", "libnvidia-")
"""Beginnings of the names of libraries that the host's driver brings."""
REBUILD = "build the image again"
FRAMEWORKS = ("torch", "tensorflow", "mxnet", "horovod")
USUAL_INDEXES = re.compile(r"https://(pypi\.org/simple|download\.pytorch\.org/|pypi\.nvidia\.com)")
USUAL_HOSTS = re.compile(
    r"(.*\.)?(debian\.org|ubuntu\.com|nvidia\.com|mellanox\.com|launchpadcontent\.net|amazonaws\.com)$"
)
"""From which images are fetched without any mirror."""
NO_ACCOUNT = "run as the image's own account, or give the number one in /etc/passwd"
Judge = Callable[[Facts], Found]


def judge(facts: Facts) -> tuple[CheckResult, ...]:
    """Return the verdicts, in a fixed order; an id stands for one check."""
    found = ((id, one) for id, judge in JUDGES.items() for one in results_of(judge(facts)))
    return tuple(dataclasses.replace(one, id=one.id or id) for id, one in found)


def document_of(one: CheckResult) -> dict[str, str]:
    """Return a verdict as plain values: a row of the table, an object of the JSON."""
    return {"id": one.id, "level": one.verdict.upper(), "what": one.seen, "do": one.remedy}


# --- what is installed ------------------------------------------------------------------------------------


def _manifest(facts: Facts) -> CheckResult:
    if facts.manifest_error:
        seen = f"what the image says of itself cannot be read: {facts.manifest_error}"
        return failed(seen, remedy=REBUILD)
    if facts.manifest is None:
        return skipped("it says nothing of itself; what is there is looked at")
    blocks = ", ".join(facts.manifest.get("blocks", {}))
    digest = str(facts.manifest.get("recipe", ""))[:19]
    return passed(f"{facts.manifest.get('name')} of recipe {digest}: {blocks}")


def _python(facts: Facts) -> CheckResult:
    return passed(f"{facts.python} ({facts.executable}), Ringleader {facts.ringleader}")


def _framework(facts: Facts, name: str) -> Found:
    block, module = facts.block(name), facts.module(name)
    claimed = block is not None or (name == "tensorflow" and facts.block("tensorflow-source") is not None)
    if not module.installed:
        return failed("the image claims it, and it is not installed", remedy=REBUILD) if claimed else ()
    if module.error:
        if any(driver in module.error for driver in DRIVER_NAMES):
            return skipped(f"{module.installed} needs the host's GPU driver to load: {module.error}")
        return failed(f"{module.installed} cannot be loaded: {module.error}", remedy=REBUILD)
    wanted = str((block or {}).get("version", ""))
    if wanted and not same_version(wanted, module.installed):
        return failed(f"{module.installed} is installed, the image claims {wanted}", remedy=REBUILD)
    return passed(_described(module))


def _described(module: Module) -> str:
    words = [module.version or module.installed]
    names = (("CUDA", "cuda"), ("cuDNN", "cudnn"), ("NCCL", "nccl"))
    words += [f"{name} {module.details[key]}" for name, key in names if module.details.get(key)]
    if "gpus" in module.details:
        words.append(f"{module.details['gpus']} GPUs here" if module.details.get("cuda") else "for CPUs")
    return ", ".join(words)


def same_version(wanted: str, installed: str) -> bool:
    """Say whether an installed version is the wanted one, its local part (``+cu128``) and zeros aside."""
    asked, there = _parts(wanted), _parts(installed)
    length = max(len(asked), len(there))
    filled, other = (parts + ["0"] * (length - len(parts)) for parts in (asked, there))
    return there[: len(asked)] == asked or filled == other


def _parts(version: str) -> list[str]:
    return version.partition("+")[0].split(".")


def _for_gpus(facts: Facts) -> bool:
    loads = any(facts.module(name).details.get("cuda") for name in FRAMEWORKS)
    return loads or any(facts.block(name) is not None for name in ("cuda", "nccl"))


def _driver(facts: Facts) -> Found:
    path = facts.library("libcuda.so.1").path
    if path:
        return passed(f"the host's driver is here: {path}")
    return skipped("no GPU driver here (libcuda.so.1): nothing was run on a GPU") if _for_gpus(facts) else ()


def _nccl(facts: Facts) -> Found:
    """Return which NCCL is really loaded."""
    of_modules = {
        path: name for name in FRAMEWORKS for path in facts.module(name).libraries if "libnccl.so" in path
    }
    by_name = facts.library("libnccl.so.2")
    for path, name in of_modules.items():
        version = facts.module(name).details.get("nccl", "")
        beside = [other for other in facts.system_nccl if other != path]
        what = f"{name} loads {version or 'NCCL'} from {path}"
        hint = "it serves programs outside of Python only (nccl-tests, Horovod); keep both of one version"
        if beside:
            return warned(f"{what}; a second one lies beside it: {', '.join(beside)}", remedy=hint)
        return passed(what)
    if by_name.path:
        return passed(f"{by_name.version} ({by_name.path})")
    if facts.block("nccl") is not None:
        return failed(f"the image claims it: {by_name.error}", remedy=REBUILD)
    return warned("no framework has loaded one, and the system has none") if _for_gpus(facts) else ()


def _mpi(facts: Facts) -> CheckResult:
    """Return which MPI starts ranks; the one that mpi4py loads may be another."""
    mpi, claimed = facts.mpi, facts.block("mpi") or {}
    if not mpi.family:
        return failed(f"nothing here starts ranks: {mpi.error}", remedy="add the block mpi to the recipe")
    what = f"{mpi.family} {mpi.version} ({mpi.mpirun})"
    kind, version = str(claimed.get("kind", "")), str(claimed.get("version", ""))
    if kind and not mpi.family.startswith(kind):
        return failed(f"{what} is found, the image claims {kind}", remedy=REBUILD)
    if version and not same_version(version.rpartition(":")[2].partition("-")[0], mpi.version):
        return failed(f"{what} is found, the image claims {version}", remedy=REBUILD)
    return passed(what)


def _mpi4py(facts: Facts) -> CheckResult:
    module, starts = facts.module("mpi4py"), facts.mpi.library
    if not module.installed:
        return failed("it is not installed", remedy="pip install 'mpi4py>=4.1,<5'")
    if module.error:
        return failed(f"{module.installed} cannot be loaded: {module.error}", remedy=REBUILD)
    loads = next((path for path in module.libraries if "/libmpi" in path), "")
    what = f"{module.version} loads {module.details.get('library', '')[:60].partition(',')[0]} ({loads})"
    if starts and loads and not _same_file(starts, loads):
        hint = "jobs of `ringleader run` get the right one; with a bare mpirun set MPI4PY_LIBMPI"
        return warned(f"{what}, but mpirun belongs to {starts}", remedy=hint)
    return passed(what)


def _same_file(one: str, other: str) -> bool:
    """Say whether two paths may be one library, whatever links and /lib for /usr/lib make of them."""
    first, second = (path.rpartition("/")[2].split(".so")[0] for path in (one, other))
    places = [path.rpartition("/")[0].removeprefix("/usr") for path in (one, other)]
    return first == second and (places[0] in places[1] or places[1] in places[0])


def _library(facts: Facts, name: str, block: str) -> CheckResult:
    """Judge a library by which MPI and NCCL reach a NIC."""
    library, claimed = facts.library(name), facts.block(block)
    if not library.path:
        if claimed is None:
            return skipped("the system has none")
        return failed(f"the image claims it: {library.error}", remedy=REBUILD)
    wanted = "" if block == "rdma" else str((claimed or {}).get("version", ""))
    what = f"{library.version} ({library.path})"
    # As far as the library tells its own: libfabric says two numbers of three.
    ours, theirs = _parts(wanted.rpartition(":")[2].partition("-")[0]), _parts(library.version)
    shortest = min(len(ours), len(theirs))
    if wanted and library.version and ours[:shortest] != theirs[:shortest]:
        return failed(f"{what} is found, the image claims {wanted}", remedy=REBUILD)
    return passed(what)


def _providers(facts: Facts) -> Found:
    if not facts.library("libibverbs.so.1").path:
        return ()
    if facts.providers:
        return passed(", ".join(facts.providers))
    told = failed if facts.block("rdma") is not None else warned
    hint = "install ibverbs-providers: without one no NIC is found"
    return told("libibverbs has no provider", remedy=hint)


def _linked(facts: Facts) -> CheckResult:
    """Return what ldd does not find; what the driver brings, or an optional plug-in needs, is not a fault."""
    if facts.ldd_error:
        return skipped(facts.ldd_error)
    lacks = {
        file: [name for name in names if not name.startswith(DRIVER_NAMES)]
        for file, names in facts.missing.items()
    }
    lost = {file: f"{file}: {', '.join(names)}" for file, names in lacks.items() if names}
    faults = [text for file, text in lost.items() if not _is_optional(file)]
    count = f"{facts.looked_at} looked at"
    if faults:
        return failed(f"{listed(faults, comma='; ')} not found ({count})", remedy="install what they need")
    if lost:
        return warned(f"plug-ins that will not load: {listed(lost.values(), comma='; ')} not found ({count})")
    driver = any(len(lacks[file]) < len(names) for file, names in facts.missing.items())
    return passed(f"{count}, nothing missing" + (" but the host's driver" if driver else ""))


def _is_optional(file: str) -> bool:
    """Say whether a library is loaded only where what it needs is there, as plug-ins are."""
    return any(part in file for part in ("/openmpi", "/ucx/", "/nvidia/", "/libibverbs/"))


# --- who runs, and what is left in the image --------------------------------------------------------------


def _historical(facts: Facts) -> bool:
    return bool(facts.manifest and facts.manifest.get("historical"))


def _user(facts: Facts) -> CheckResult:
    who = facts.account
    if not who.name:
        hint = "run as the image's own account: ssh and sshd refuse a number without one"
        return warned(f"the number {who.uid} has no account", remedy=hint)
    if who.uid or facts.manifest is None or _historical(facts):
        return passed(f"{who.name} ({who.uid})")
    if (facts.block("account") or {}).get("name", "") == "root":
        return passed("root, as the recipe wants it")
    return warned("root", remedy="without --user the image's own account runs")


def _home(facts: Facts) -> CheckResult:
    who = facts.account
    if not who.home_error:
        return passed(f"{who.home} can be written")
    hint = "mount a writable one, or set HOME: caches and keys go there"
    return warned(f"{who.home or 'HOME'} cannot be written: {who.home_error}", remedy=hint)


def _memlock(facts: Facts) -> CheckResult:
    soft, in_rank = facts.account.memlock_soft, facts.two_ranks.ranks.get("memlock")

    def words(limit: int) -> str:
        return "unlimited" if limit < 0 else f"{limit / 2**20:.0f} MiB"

    what = f"{words(soft)} may be locked"
    if isinstance(in_rank, int) and in_rank != soft and facts.two_ranks.over == "ssh":
        what += f"; in a rank over ssh {words(in_rank)}"
    least = min((one for one in (soft, in_rank) if isinstance(one, int) and one >= 0), default=-1)
    if facts.block("rdma") is None or not 0 <= least < ENOUGH_LOCKED_MEMORY:
        return passed(what)
    hint = "for RDMA start the container with memlock unlimited (--ulimit memlock=-1) or IPC_LOCK as root"
    return warned(what, remedy=hint)


def _keys(facts: Facts) -> CheckResult:
    inside = [key.path for key in facts.keys if not key.mounted]
    if not inside:
        mounted = "; those that are mounted are none of the image's" if facts.keys else ""
        return passed(f"no private key is part of it{mounted}")
    what = f"private keys: {', '.join(inside)}"
    if facts.manifest is None:
        return warned(what, remedy="fine on a machine; in an image everybody who has it would have them")
    if _historical(facts) and (facts.block("sshd") or {}).get("keys") == "in-image":
        return warned(f"{what}, as images had it then", remedy="give this image to nobody you do not trust")
    return failed(what, remedy="remove them in the step that makes them; mount keys at the start")


def _pip(facts: Facts) -> CheckResult:
    other = [one for one in facts.pip_sources if not USUAL_INDEXES.search(one)]
    if not other:
        return passed("asks the usual index")
    hint = "a mirror is left in the image; set mirrors.keep = true where it is wanted"
    return _elsewhere(facts, failed(f"asks other places: {'; '.join(other)}", remedy=hint))


def _apt(facts: Facts) -> CheckResult:
    if not facts.apt_hosts:
        return skipped("no sources are configured")
    other = [host for host in facts.apt_hosts if not USUAL_HOSTS.match(host)]
    if not other:
        return passed(f"asks the usual places: {', '.join(facts.apt_hosts)}")
    # The base may have brought them: an image cannot tell, so this is not a fault.
    hint = "left by a mirror, or by the base image"
    return _elsewhere(facts, warned(f"asks other places: {', '.join(other)}", remedy=hint))


def _elsewhere(facts: Facts, found: CheckResult) -> CheckResult:
    """Return what was found as it counts: nothing on a machine, right where the recipe keeps its mirrors."""
    if facts.manifest is None:
        return skipped(found.seen)
    return passed(f"{found.seen}, as the recipe wants it") if facts.manifest.get("mirrors_kept") else found


# --- sshd and ranks ---------------------------------------------------------------------------------------


def _sshd(facts: Facts) -> Iterator[CheckResult]:
    """Yield whether sshd starts, and where it does whether it lets somebody in."""
    found, claimed = facts.two_ranks, facts.block("sshd") is not None
    worse = failed if claimed else warned
    if not found.sshd:
        lost = failed("the image claims it, and it is not installed", remedy=REBUILD)
        yield lost if claimed else skipped("it is not installed; ranks start on one host only")
        return
    what = f"{found.version or 'OpenSSH'} ({found.sshd})"
    configured = f" with {found.config}" if found.config else ""
    if found.start_error:
        seen = f"{what} does not start{configured}: {found.start_error}"
        yield worse(seen, remedy=_hint(found.start_error, START_HINTS))
        return
    yield passed(f"{what} starts{configured}")
    account = (facts.block("account") or {}).get("name", "")
    if not found.login_error:
        yield passed("with a throw-away key, as this account", id="login")
    elif account not in ("", facts.account.name):
        what = f"{facts.account.name} is not let in, only {account} is: {found.login_error}"
        yield warned(what, id="login", remedy=f"run the check as {account}")
    else:
        remedy = _hint(found.login_error, LOGIN_HINTS)
        yield worse(f"nobody can log in: {found.login_error}", id="login", remedy=remedy)


START_HINTS = {
    "privilege separation": "mkdir -p /run/sshd when the container starts; openssh-server makes the account"
    " sshd",
    "No user exists": NO_ACCOUNT,
}
LOGIN_HINTS = {
    "locked": "usermod -p '*' ACCOUNT: no password fits, and the account is not locked",
    "No user exists": NO_ACCOUNT,
}
"""Words of sshd's and ssh's error → what helps."""


def _hint(error: str, hints: Mapping[str, str]) -> str:
    return next((hint for words, hint in hints.items() if words in error), "")


def _ranks(facts: Facts) -> CheckResult:
    found = facts.two_ranks
    if not facts.mpi.family:
        return skipped("there is no MPI to start them")
    where = "from a session of that sshd" if found.over == "ssh" else "locally, without sshd"
    if found.ranks_error:
        seen = f"2 ranks did not run {where}: {found.ranks_error}"
        return failed(seen, remedy="ringleader run -n 2 shows more")
    if found.ranks.get("size") != 2:
        return failed(f"{found.ranks.get('size')} ranks ran instead of 2 {where}")
    through = found.ranks.get("through", "")
    return passed(f"2 ranks, started {where}, agree on a sum through {through}")


def _training(facts: Facts) -> Iterator[CheckResult]:
    for framework, error in facts.two_ranks.training.items():
        id, step = f"training {framework}", "ringleader run -n 2 python -m ringleader.doctor.training_step"
        if error:
            what = f"2 ranks did not train one step: {error}"
            yield failed(what, id=id, remedy=f"{step} {framework} shows more")
        else:
            yield passed("2 ranks train one step and have equal weights", id=id)


JUDGES: Mapping[str, Judge] = {
    "image": _manifest,
    "python": _python,
    **{name: partial(_framework, name=name) for name in FRAMEWORKS},
    "driver": _driver,
    "nccl": _nccl,
    "mpi": _mpi,
    "mpi4py": _mpi4py,
    "ucx": partial(_library, name="libucp.so.0", block="ucx"),
    "libfabric": partial(_library, name="libfabric.so.1", block="libfabric"),
    "libibverbs": partial(_library, name="libibverbs.so.1", block="rdma"),
    "providers": _providers,
    "libraries": _linked,
    "user": _user,
    "home": _home,
    "memlock": _memlock,
    "keys": _keys,
    "pip": _pip,
    "apt": _apt,
    "sshd": _sshd,
    "ranks": _ranks,
    "training": _training,
}
"""Id → the judge; results may have their own id."""
