"""Checks of Python and of the packages that Ringleader itself needs. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from ringleader.doctor.software_checks.installed_versions import SOFTWARE, installed, version_of
from ringleader.fabric.check_result import CheckResult
from ringleader.fabric.checks.check import check, failed, passed, skipped, warned
from ringleader.fabric.facts import HostFacts
from ringleader.images.tables.version_order import at_least

PYTHON = "3.11"
MPI4PY = ("4.1", "5")
NUMPY = ("1.23", "3")
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


@check(
    "python.version",
    "The version of Python",
    group="Python",
    reads="the interpreter that runs ringleader",
    why="Ringleader is written for Python 3.11 and newer; ranks use the same interpreter.",
    remedy="install a newer Python, and Ringleader for it",
    passes="3.11 or newer",
    fails="older",
    skips="not known",
)
def python(facts: HostFacts) -> Iterable[CheckResult]:
    """Hold Python's version against ours."""
    if not facts.software.python:
        yield skipped("these facts do not tell")
        return
    seen = f"{facts.software.python} ({facts.software.executable}), Ringleader {facts.software.ringleader}"
    judge = passed if at_least(facts.software.python, PYTHON) else failed
    yield judge(seen, expected=f"{PYTHON} or newer")


@check(
    "python.mpi4py",
    "mpi4py",
    group="Python",
    reads="its record",
    why="Ranks speak MPI through it.",
    remedy="pip install 'mpi4py>=4.1,<5'",
    passes="4.1 or newer, below 5",
    fails="missing, or another version",
    needs=SOFTWARE,
)
def mpi4py(facts: HostFacts) -> Iterable[CheckResult]:
    """Hold mpi4py's version against what Ringleader needs."""
    seen = version_of(facts, "mpi4py")
    expected = f"{MPI4PY[0]} or newer, below {MPI4PY[1]}"
    good = seen and at_least(seen, MPI4PY[0]) and not at_least(seen, MPI4PY[1])
    yield passed(seen, expected=expected) if good else failed(seen or "not installed", expected=expected)


@check(
    "python.numpy",
    "NumPy, and frameworks compiled for its version",
    group="Python",
    reads="records of NumPy and of the frameworks",
    why="A framework that was compiled for NumPy 1 fails, at its import or later, beside NumPy 2.",
    remedy="pip install 'numpy<2', or a newer framework",
    passes="every framework knows this NumPy",
    fails="NumPy is missing or too old, or 2 beside a framework of NumPy 1's time",
    source="release notes of PyTorch 2.3, TensorFlow 2.18, JAX 0.4.26, Keras 3.4",
    needs=SOFTWARE,
)
def numpy(facts: HostFacts) -> Iterable[CheckResult]:
    """Look for frameworks that do not know NumPy 2."""
    seen = version_of(facts, "numpy")
    if not seen or not at_least(seen, NUMPY[0]):
        remedy = f"pip install 'numpy>={NUMPY[0]},<{NUMPY[1]}'"
        yield failed(seen or "not installed", expected=f"{NUMPY[0]} or newer", remedy=remedy)
        return
    clashes = [
        f"{name} {there}"
        for package, since, name in NUMPY_2
        if (there := version_of(facts, package)) and not at_least(there, since)
    ]
    if not at_least(seen, "2") or not clashes:
        yield passed(seen)
    else:
        yield failed(f"{seen} beside {', '.join(clashes)}", expected="NumPy 1 for these")


@check(
    "python.extras",
    "Ringleader's extras",
    group="Python",
    reads="records of their packages",
    why="Pages and plots need the extra report, jobs on Kubernetes the extra kubernetes.",
    remedy="pip install 'ringleader[report,kubernetes]'",
    passes="both are installed",
    warns="one is installed in part",
    skips="one is not installed: its commands say so",
    needs=SOFTWARE,
)
def extras(facts: HostFacts) -> Iterable[CheckResult]:
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


@check(
    "python.horovod",
    "Horovod beside Ringleader",
    group="Python",
    reads="Horovod's record",
    why="A script that imports horovod gets the installed one, not Ringleader.",
    remedy="",
    passes="always: --as-horovod makes it mean Ringleader",
    needs=installed("horovod", "Horovod"),
)
def horovod(facts: HostFacts) -> Iterable[CheckResult]:
    """Tell that both are there."""
    seen = version_of(facts, "horovod")
    yield passed(f"{seen} is installed: scripts that import horovod get Ringleader with --as-horovod")


CHECKS = (python, mpi4py, numpy, extras, horovod)
