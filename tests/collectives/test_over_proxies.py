"""The engine's contract over MPI proxies: the same programs as under mpirun, in ranks of an elastic job."""

from typing import Any

import pytest
from tests.collectives.layouts import CONTRACT, programs

pytestmark = [pytest.mark.mpi, pytest.mark.torch]

PLAIN_MPI = {"RINGLEADER_TRANSPORT": "mpi"}
PATIENCE = {"RINGLEADER_MISMATCH_PATIENCE": "0.2"}
SETS = {"HOROVOD_DYNAMIC_PROCESS_SETS": "1"}


@programs(
    (f"{CONTRACT} torch", "2 2x1", "1 4 2x2 2+1"),
    (f"{CONTRACT} torch", "", "2", PLAIN_MPI),
    ("contract_operations.py {transport}", "", "1 3 2x2"),
    ("contract_operations.py {transport}", "", "3", PLAIN_MPI),
    ("training.py", "2 2x1", "2x2 2+1"),
    ("lives.py 30", "", "2"),
    ("lives.py 20", "", "2x2"),
    ("joining.py", "", "3 2x2"),
    ("threads.py", "", "2"),
    ("averages.py {transport}", "", "2"),
    ("batch_norm.py", "", "2"),
    ("compressing.py", "", "2x1"),
    ("registered.py", "", "2"),
    ("registering.py", "", "2x2"),
    ("releasing.py", "", "2"),
    ("repeated.py", "", "2x2"),
    ("sharding.py", "", "2x1"),
    ("sharding_state.py", "", "3"),
    ("sets.py", "", "3 2x2", SETS),
    ("autotuned.py join", "", "2", {"RINGLEADER_AUTOTUNE": "1"}),
    ("thawing.py", "", "2"),
    ("optimizing.py", "", "2 2x2"),
    ("swapped.py 15", "", "2 2x2", PATIENCE),
    ("kept_reductions.py", "", "2", PATIENCE),
    ("dropping.py", "", "2"),
    ("freed_memory.py", "", "2"),
    ("in_step.py uncoupled", "", "2", {"RINGLEADER_UNCOUPLED": "1"}),
    ("in_step.py in-step", "", "2x2", {"RINGLEADER_UNCOUPLED": "in-step"}),
)
def test_programs(proxy_jobs: Any, program: str, layout: Any, environ: dict[str, str]) -> None:
    proxy_jobs.pass_on(layout, program, **environ)


@pytest.mark.long
def test_autotune(proxy_jobs: Any) -> None:
    proxy_jobs("autotuned.py", ranks=2, RINGLEADER_AUTOTUNE="1").passed_with_trials(2)
