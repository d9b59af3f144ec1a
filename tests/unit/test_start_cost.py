"""What may not be loaded where a user waits for a first line; counted in modules, as seconds vary."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.commands import finished

import ringleader

pytestmark = pytest.mark.process

HEAVY = ("mpi4py", "torch", "numpy", "matplotlib", "jinja2", "cloudpickle", "tabulate")


def loaded(code: str) -> set[str]:
    """Names of all modules that a fresh interpreter has loaded after some code."""
    last = "sys.stdout.write('\\n@' + ' '.join(sys.modules))"
    program = f"import sys\ntry:\n {code}\nexcept SystemExit:\n pass\n{last}"
    done = finished([sys.executable, "-c", program], timeout=60, check=True)
    return {
        name.partition(".")[0] if heavy_root(name) else name for name in done.stdout.split("@")[-1].split()
    }


def heavy_root(name: str) -> bool:
    return name.partition(".")[0] in HEAVY


MAIN = "from ringleader.cli.main import main; main([{words}])"


@pytest.mark.parametrize(
    "code",
    [
        "import ringleader",
        MAIN.format(words="'--help'"),
        MAIN.format(words="'run', '--help'"),
        MAIN.format(words="'run', '-n', '0', 'true'"),
    ],
)
def test_nothing_heavy_is_loaded(code: str) -> None:
    assert loaded(code).isdisjoint(HEAVY)


def test_importing_the_package_loads_nearly_nothing_of_it() -> None:
    ours = {name for name in loaded("import ringleader") if name.startswith("ringleader")}
    assert ours == {"ringleader"}


def test_help_loads_no_command() -> None:
    found = loaded(MAIN.format(words="'--help'"))
    assert {name for name in found if name.startswith("ringleader.")} <= {
        "ringleader.cli",
        "ringleader.cli.option_defaults",
        "ringleader.cli.interrupts",
        "ringleader.cli.command_groups",
        "ringleader.cli.main",
        "ringleader.errors",
        "ringleader.value_class",
    }


def test_the_launcher_is_not_loaded_for_a_wrong_request() -> None:
    assert "ringleader.launch.launch_job" not in loaded(MAIN.format(words="'run', '-n', '0', 'true'"))


# --- agents and mpirun's supervisor ----------------------------------------------------------------------

SLOW = (
    *("argparse", "asyncio", "contextlib", "ctypes", "dataclasses", "fnmatch"),
    *("hashlib", "hmac", "inspect", "logging", "pathlib", "random", "selectors"),
    *("shutil", "signal", "socket", "subprocess", "tempfile", "threading", "traceback", "typing", "uuid"),
)
"""Modules of the standard library that take a millisecond or more of every agent's start."""
OF_JSON = ("json", "re", "enum", "collections", "functools")
"""What reading JSON loads, in 8 ms."""


def loaded_in_bare(code: str) -> set[str]:
    """Names of all modules loaded after some code in an interpreter like an agent's."""
    root = Path(ringleader.__file__).parents[1]
    program = f"import sys\nsys.path.append({str(root)!r})\n{code}\nprint(*sys.modules)"
    argv = [sys.executable, "-I", "-S", "-c", program]
    return set(subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True).stdout.split())


@pytest.mark.parametrize(
    ("module", "after"),
    [
        ("agents.rank_agent_guard", ""),
        ("agents.rank_agent_loop", "process_tree.die_with_parent(0, os.getppid())"),
        ("launch.mpirun.mpirun_supervisor", ""),
    ],
)
def test_what_runs_beside_ranks_and_mpirun_loads_little(module: str, after: str) -> None:
    found = loaded_in_bare(f"import os\nfrom ringleader.{module} import *\n{after}")
    assert f"ringleader.{module}" in found
    slow = {*SLOW, *(OF_JSON if module == "agents.rank_agent_guard" else ())}
    assert found.isdisjoint(slow), found & slow


def test_importing_the_package_loads_no_typing() -> None:
    assert loaded_in_bare("import ringleader").isdisjoint({*SLOW, *OF_JSON})


def test_run_loads_no_ssh_lab_or_engine_for_a_job_here() -> None:
    found = loaded("import ringleader.cli.run.command, ringleader.launch.launch_job")
    ours = ("launch.ssh", "lab", "engine", "torch", "bench", "report", "api")
    others = {"asyncio", "secrets", "random", "hmac", "concurrent.futures", "tempfile", *HEAVY}
    assert found & {*(f"ringleader.{name}" for name in ours), *others} == set()


RUN = MAIN.format(words="'run', '--oversubscribe', '-n', '2', 'true'")


def test_a_whole_run_loads_no_more_than_it_needs() -> None:
    found = loaded(RUN)
    assert "ringleader.launch.supervision.mpirun_session" in found
    ours = ("launch.ssh", "lab", "engine", "torch", "bench", "report", "api", "fabric.facts", "kube")
    ours += ("controller", "images", "doctor", "launch.kubernetes")
    others = {"asyncio", "secrets", "random", "hmac", "concurrent.futures", "tempfile", "tomllib"}
    others |= {"aiohttp", "yaml", "kubernetes", "cryptography", "prometheus_client", *HEAVY}
    assert found & {*(f"ringleader.{name}" for name in ours), *others} == set()


def test_what_a_running_mpirun_needs_is_imported_once_it_runs() -> None:
    found = loaded("import ringleader.launch.launch_job")
    late = ("supervision.supervisor", "supervision.session", "exit_reason")
    assert found & {f"ringleader.launch.{name}" for name in late} == set()


def test_few_classes_of_a_run_are_compiled_by_the_standard_library() -> None:
    """Each takes most of a millisecond; values of the launcher use `value_class`."""
    code = (
        "import dataclasses, sys\n"
        " made, make = [], dataclasses._process_class\n"
        " dataclasses._process_class = lambda cls, init, *rest: (\n"
        "  made.append(cls.__name__) if init else None, make(cls, init, *rest))[1]\n"
        f" try:\n  {RUN}\n"
        " finally:\n  sys.stdout.write('@' + ' '.join(made))"
    )
    program = f"import sys\ntry:\n {code}\nexcept SystemExit:\n pass"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert len(done.stdout.rpartition("@")[2].split()) <= 4, done.stdout
