"""Checks of what is installed on a host to start ranks and to train: by records of packages. Pure.

Nothing is imported or started: ``ringleader doctor --image`` does that. The texts are rows of
``fabric/checks/checks.toml``.
"""

from __future__ import annotations

from collections.abc import Iterator

from ringleader.adapters.framework_check import OLDEST as OLDEST_FRAMEWORKS
from ringleader.fabric.check_result import CheckResult, failed, passed, skipped, unless, warned
from ringleader.fabric.checks.check import Check, Found, checks_of, condition, judge
from ringleader.fabric.checks.conditions import NVIDIA_VENDOR
from ringleader.fabric.facts import HostFacts, MpiFacts
from ringleader.images.tables.version_order import at_least, series

TENSORFLOW = ("tensorflow", "tensorflow-cpu", "tensorflow-gpu", "tf-nightly")
FRAMEWORKS = ("torch", "tensorflow", "keras", "tf-keras", "jax", "mxnet", "horovod")
OLDEST_MPI = {"Open MPI": "4.0", "MPICH": "4.0", "Intel MPI": "2021", "MVAPICH": "2.3"}
"""Family → the oldest version that Ringleader drives."""
PYTHON, MPI4PY, NUMPY = "3.11", ("4.1", "5"), ("1.23", "3")
NUMPY_2 = (
    ("torch", "2.3", "PyTorch"),
    ("tensorflow", "2.18", "TensorFlow"),
    ("jax", "0.4.26", "JAX"),
    ("keras", "3.4", "Keras"),
    ("mxnet", "99", "MXNet"),
)
"""Package, its first version that was compiled for NumPy 2 (MXNet: none), its name."""
EXTRAS = {
    "report": ("jinja2", "matplotlib"),
    "kubernetes": ("pyyaml", "aiohttp", "cryptography", "prometheus-client"),
}
"""Ringleader's extras that are no framework → their packages."""


def version_of(facts: HostFacts, name: str) -> str:
    """Return a package's version; empty where it is not installed. ``tensorflow`` is also its CPU wheel."""
    found = starting_with(facts, "")
    names = TENSORFLOW if name == "tensorflow" else (name,)
    return next((found[one] for one in names if one in found), "")


def starting_with(facts: HostFacts, start: str) -> dict[str, str]:
    """Return the packages whose names start with some letters: ``nvidia-nccl-cu``."""
    found = {key.lower().replace("_", "-"): value for key, value in facts.software.packages.items()}
    return {name: value for name, value in sorted(found.items()) if name.startswith(start)}


condition("software", "what is installed could not be read", lambda facts: facts.software.packages)
condition("mpi", "no MPI here", lambda facts: facts.software.mpis)
condition("ssh", "no ssh client here", lambda facts: facts.software.ssh)
condition(
    "package.nccl", "no wheel of NCCL is installed", lambda facts: starting_with(facts, "nvidia-nccl-cu")
)
condition(
    "package.torch", "PyTorch is not installed for this Python", lambda facts: version_of(facts, "torch")
)
condition(
    "package.tensorflow",
    "TensorFlow is not installed for this Python",
    lambda facts: version_of(facts, "tensorflow"),
)
condition("package.keras", "Keras is not installed for this Python", lambda facts: version_of(facts, "keras"))
condition("package.jax", "JAX is not installed for this Python", lambda facts: version_of(facts, "jax"))
condition(
    "package.horovod", "Horovod is not installed for this Python", lambda facts: version_of(facts, "horovod")
)


# --- MPI and ssh ------------------------------------------------------------------------------------------


def _named(mpi: MpiFacts) -> str:
    return f"{mpi.family} {mpi.version}".rstrip()


@judge("mpi.found")
def found(facts: HostFacts) -> CheckResult:
    """Tell which MPI ranks are started with."""
    if not facts.software.mpis:
        return failed("no MPI: no Open MPI wheel beside Python, no mpirun or mpiexec on PATH")
    first = facts.software.mpis[0]
    return passed(f"{'embedded ' if first.embedded else ''}{_named(first)} ({first.mpirun})")


@judge("mpi.version")
def mpi_version(facts: HostFacts) -> CheckResult:
    """Compare the version of the first MPI with the oldest that is driven."""
    mpi = facts.software.mpis[0]
    oldest = OLDEST_MPI.get(mpi.family, "")
    if not mpi.version or not oldest:
        return skipped(f"the version of {mpi.family} is not known")
    return (passed if at_least(mpi.version, oldest) else warned)(_named(mpi), expected=f"{oldest} or newer")


@judge("mpi.library")
def library(facts: HostFacts) -> CheckResult:
    """Tell the library that ranks are given."""
    mpi, chosen = facts.software.mpis[0], facts.environment.get("MPI4PY_LIBMPI")
    if mpi.library or chosen:
        return passed(mpi.library or f"MPI4PY_LIBMPI={chosen}")
    return warned(f"no libmpi is found near {mpi.mpirun}")


@judge("mpi.others")
def others(facts: HostFacts) -> CheckResult:
    """List the MPIs that ranks are not started with."""
    names = ", ".join(f"{_named(one)} ({one.mpirun})" for one in facts.software.mpis[1:])
    return passed(f"also {names}; --mpi chooses" if names else "there is no other MPI")


@judge("ssh.client")
def client(facts: HostFacts) -> CheckResult:
    """Tell where ssh is."""
    software = facts.software
    if not software.ssh:
        return warned("no ssh client: jobs run on this host only")
    return passed(software.ssh + (f", with {software.ssh_config}" if software.ssh_config else ""))


@judge("ssh.server")
def server(facts: HostFacts) -> CheckResult:
    """Tell where sshd is."""
    path = facts.software.sshd
    return passed(path) if path else skipped("no sshd is installed: other hosts cannot start ranks here")


@judge("ssh.known-hosts")
def known_hosts(facts: HostFacts) -> CheckResult:
    """Count the known keys."""
    count = facts.software.known_hosts
    if count:
        return passed(f"{count} known")
    return skipped("no host key is known yet: --accept-new-host-keys takes those of a first connection")


# --- Python -----------------------------------------------------------------------------------------------


@judge("python.version")
def python(facts: HostFacts) -> CheckResult:
    """Compare Python's version with ours."""
    software = facts.software
    if not software.python:
        return skipped("these facts do not tell")
    seen = f"{software.python} ({software.executable}), Ringleader {software.ringleader}"
    told = passed if at_least(software.python, PYTHON) else failed
    return told(seen, expected=f"{PYTHON} or newer")


@judge("python.mpi4py")
def mpi4py(facts: HostFacts) -> CheckResult:
    """Compare mpi4py's version with what Ringleader needs."""
    seen = version_of(facts, "mpi4py")
    good = seen and at_least(seen, MPI4PY[0]) and not at_least(seen, MPI4PY[1])
    expected = f"{MPI4PY[0]} or newer, below {MPI4PY[1]}"
    return (passed if good else failed)(seen or "not installed", expected=expected)


@judge("python.numpy")
def numpy(facts: HostFacts) -> CheckResult:
    """Look for frameworks that do not know NumPy 2."""
    seen = version_of(facts, "numpy")
    if not seen or not at_least(seen, NUMPY[0]):
        remedy = f"pip install 'numpy>={NUMPY[0]},<{NUMPY[1]}'"
        return failed(seen or "not installed", expected=f"{NUMPY[0]} or newer", remedy=remedy)
    clashes = [
        f"{name} {there}"
        for package, since, name in NUMPY_2
        if (there := version_of(facts, package)) and not at_least(there, since)
    ]
    if not at_least(seen, "2") or not clashes:
        return passed(seen)
    return failed(f"{seen} beside {', '.join(clashes)}", expected="NumPy 1 for these")


@judge("python.extras")
def extras(facts: HostFacts) -> Iterator[CheckResult]:
    """Tell which extras are there."""
    for extra, packages in EXTRAS.items():
        missing = [name for name in packages if not version_of(facts, name)]
        remedy = f"pip install 'ringleader[{extra}]'"
        if not missing:
            yield passed("installed", subject=extra)
        elif len(missing) == len(packages):
            yield skipped(f"not installed ({remedy})", subject=extra)
        else:
            yield warned(f"{', '.join(missing)} missing", subject=extra, remedy=remedy)


@judge("python.horovod")
def horovod(facts: HostFacts) -> CheckResult:
    """Tell that both are there."""
    seen = version_of(facts, "horovod")
    return passed(f"{seen} is installed: scripts that import horovod get Ringleader with --as-horovod")


# --- frameworks -------------------------------------------------------------------------------------------


@judge("frameworks.installed")
def frameworks(facts: HostFacts) -> Iterator[CheckResult]:
    """List the frameworks, each with its version."""
    there = {name: seen for name in FRAMEWORKS if (seen := version_of(facts, name))}
    if not there:
        yield skipped("none is installed for this Python")
    for name, seen in there.items():
        oldest = OLDEST_FRAMEWORKS.get(name, "")
        expected = f"{oldest} or newer" if oldest else ""
        if oldest and not at_least(seen, oldest):
            yield warned(seen, expected=expected, subject=name)
        else:
            yield passed(f"{seen} is installed (not loaded)", expected=expected, subject=name)


@judge("torch.gpu-build")
def torch_gpu_build(facts: HostFacts) -> CheckResult:
    """Look for a CPU wheel beside GPUs."""
    seen = version_of(facts, "torch")
    gpus = [one for one in facts.gpus if one.vendor in (None, NVIDIA_VENDOR)]
    if gpus and seen.endswith("+cpu"):
        return warned(f"{seen} is for CPUs, and {len(gpus)} GPUs are here", expected="a build for CUDA")
    return passed(f"{seen}, {len(gpus)} GPUs of NVIDIA here")


@judge("torch.nccl")
def torch_nccl(facts: HostFacts) -> Iterator[CheckResult]:
    """Compare NCCL's wheel with PyTorch's requirement."""
    wanted, wheels = facts.software.torch_nccl, starting_with(facts, "nvidia-nccl-cu")
    if not wanted:
        yield skipped("PyTorch requires no wheel of NCCL")
    elif not wheels:
        remedy = f"pip install nvidia-nccl-cu12=={wanted}"
        yield warned("no wheel of NCCL is installed", expected=wanted, remedy=remedy)
    for name, seen in wheels.items() if wanted else ():
        if seen == wanted:
            yield passed(seen, expected=wanted, subject=name)
        else:
            remedy = f"pip install {name}=={wanted}"
            yield warned(seen, expected=f"{wanted}, as PyTorch requires", subject=name, remedy=remedy)


@judge("nccl.one-wheel")
def nccl_one_wheel(facts: HostFacts) -> CheckResult:
    """Look for two wheels in one place."""
    wheels = starting_with(facts, "nvidia-nccl-cu")
    words = ", ".join(f"{name} {seen}" for name, seen in wheels.items())
    return passed(words) if len(wheels) == 1 else warned(words, expected="one of them")


@judge("tensorflow.keras")
def tensorflow_keras(facts: HostFacts) -> Found:
    """Look for Keras packages that this TensorFlow cannot use."""
    own, keras, legacy = (version_of(facts, name) for name in ("tensorflow", "keras", "tf-keras"))
    bad = []
    if at_least(own, "2.16") and keras and not at_least(keras, "3"):
        bad.append(warned(f"Keras {keras} beside TensorFlow {own}", expected="Keras 3", subject="keras"))
    if legacy and series(legacy) != series(own):
        remedy = f"pip install 'tf-keras=={series(own)}.*'"
        seen = f"tf-keras {legacy} beside TensorFlow {own}"
        bad.append(warned(seen, expected=f"{series(own)}", subject="tf-keras", remedy=remedy))
    words = {"TensorFlow": own, "Keras": keras, "tf-keras": legacy}
    return unless(bad, ", ".join(f"{name} {seen}" for name, seen in words.items() if seen))


@judge("keras.backend")
def keras_backend(facts: HostFacts) -> CheckResult:
    """Look for a backend."""
    there = [name for name in ("tensorflow", "jax", "torch") if version_of(facts, name)]
    if there:
        return passed(", ".join(there))
    return warned("Keras has no backend", expected="tensorflow, jax or torch")


@judge("jax.jaxlib")
def jaxlib(facts: HostFacts) -> CheckResult:
    """Compare JAX's parts."""
    jax, lib = version_of(facts, "jax"), version_of(facts, "jaxlib")
    parts = starting_with(facts, "jax-cuda").items()
    plugins = {name: seen for name, seen in parts if name.endswith("-plugin")}
    other = [f"{name} {seen}" for name, seen in plugins.items() if seen != lib]
    if not lib:
        return warned(f"JAX {jax} without jaxlib")
    if not at_least(jax, lib):
        return warned(f"jaxlib {lib} is newer than JAX {jax}", expected=f"{jax} or older")
    if other:
        return warned(f"{', '.join(other)} beside jaxlib {lib}", expected=lib)
    return passed(f"JAX {jax}, jaxlib {lib}{f', {len(plugins)} plugin' if plugins else ''}")


SOFTWARE_CHECKS: tuple[Check, ...] = checks_of("MPI and ssh", "Python", "Frameworks")
"""In the order in which they are shown."""
