"""What may not be loaded where a user waits for a first line; counted in modules, as seconds vary."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.commands import finished

import ringleader

pytestmark = pytest.mark.process

HEAVY = ("mpi4py", "torch", "numpy", "matplotlib", "jinja2", "cloudpickle", "tabulate")


def loaded(code):
    """Names of all modules that a fresh interpreter has loaded after some code; of heavy ones the package."""
    last = "sys.stdout.write('\\n@' + ' '.join(sys.modules))"
    program = f"import sys\ntry:\n {code}\nexcept SystemExit:\n pass\n{last}"
    done = finished([sys.executable, "-c", program], timeout=60, check=True)
    names = done.stdout.split("@")[-1].split()
    return {root if (root := name.partition(".")[0]) in HEAVY else name for name in names}


def test_a_wrong_request_loads_nothing_heavy_and_not_the_launcher():
    found = loaded(MAIN.format(words="'run', '-n', '0', 'true'"))
    assert found.isdisjoint({*HEAVY, "ringleader.launch.launch_job"})
    assert loaded(MAIN.format(words="'run', '--help'")).isdisjoint(HEAVY)


MAIN = "from ringleader.cli.main import main; main([{words}])"


# --- agents and mpirun's supervisor ----------------------------------------------------------------------

SLOW = (
    *("argparse", "asyncio", "contextlib", "ctypes", "dataclasses", "fnmatch"),
    *("hashlib", "hmac", "inspect", "logging", "pathlib", "random", "selectors"),
    *("shutil", "signal", "socket", "subprocess", "tempfile", "threading", "traceback", "typing", "uuid"),
)
"""Modules of the standard library that take a millisecond or more of every agent's start."""
OF_JSON = ("json", "re", "enum", "collections", "functools")
"""What reading JSON loads, in 8 ms."""


def loaded_in_bare(code):
    """Names of all modules loaded after some code in an interpreter like an agent's."""
    root = Path(ringleader.__file__).parents[1]
    program = f"import sys\nsys.path.append({str(root)!r})\n{code}\nprint(*sys.modules)"
    argv = [sys.executable, "-I", "-S", "-c", program]
    return set(subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True).stdout.split())


def test_importing_the_package_and_help_load_nearly_nothing_of_it():
    found = loaded_in_bare("import ringleader")
    assert {name for name in found if name.startswith("ringleader")} == {"ringleader"}
    assert found.isdisjoint({*SLOW, *OF_JSON})
    found = loaded(MAIN.format(words="'--help'"))
    names = ("option_defaults", "interrupts", "command_groups", "main")
    ours = {"cli", *(f"cli.{name}" for name in names), "errors", "value_class"}
    assert {name for name in found if name.startswith("ringleader.")} <= {
        f"ringleader.{name}" for name in ours
    }
    assert found.isdisjoint(HEAVY)


def test_what_runs_beside_ranks_and_mpirun_loads_little():
    for module, after in (
        ("agents.rank_agent_guard", ""),
        ("agents.rank_agent_loop", "process_tree.die_with_parent(0, os.getppid())"),
        ("launch.mpirun.mpirun_supervisor", ""),
    ):
        found = loaded_in_bare(f"import os\nfrom ringleader.{module} import *\n{after}")
        assert f"ringleader.{module}" in found
        slow = {*SLOW, *(OF_JSON if module == "agents.rank_agent_guard" else ())}
        assert found.isdisjoint(slow), found & slow


RUN = MAIN.format(words="'run', '--oversubscribe', '-n', '2', 'true'")


def test_a_whole_run_loads_no_more_than_it_needs():
    found = loaded(RUN)
    assert "ringleader.launch.supervision.mpirun_session" in found
    ours = ("launch.ssh", "lab", "engine", "torch", "bench", "report", "api", "fabric.facts", "kube")
    ours += ("controller", "images", "doctor", "launch.kubernetes")
    others = {"asyncio", "secrets", "random", "hmac", "concurrent.futures", "tempfile", "tomllib"}
    others |= {"aiohttp", "yaml", "kubernetes", "cryptography", "prometheus_client", *HEAVY}
    assert found & {*(f"ringleader.{name}" for name in ours), *others} == set()


def test_what_a_running_mpirun_needs_is_imported_once_it_runs():
    found = loaded("import ringleader.launch.launch_job")
    late = ("supervision.supervisor", "supervision.session", "exit_reason")
    assert found & {f"ringleader.launch.{name}" for name in late} == set()


def test_few_classes_of_a_run_are_compiled_by_the_standard_library():
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
