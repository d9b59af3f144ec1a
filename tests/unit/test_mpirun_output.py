"""What is taken from the text that mpirun prints."""

import pytest

from ringleader.launch.exit_reason import cause_in

_ABORTED = """\
--------------------------------------------------------------------------
mpirun detected that one or more processes exited with non-zero status, thus causing
the job to be terminated. The first process to do so was:

  Process name: [[1779,1],0]
  Exit code:    1
--------------------------------------------------------------------------
"""
"""As Open MPI 4.1.4 prints it."""


@pytest.mark.parametrize(
    ("output", "cause"),
    [
        ("", ""),
        (_ABORTED, "Exit code:    1"),
        (
            f"ringleader: MPI proxy: mpi4py 3.1.4 is installed\n{_ABORTED}",
            "ringleader: MPI proxy: mpi4py 3.1.4",
        ),
        (
            f"Traceback (most recent call last):\nModuleNotFoundError: No module named 'x'\n{_ABORTED}",
            "ModuleNotFoundError: No module named 'x'",
        ),
    ],
)
def test_the_cause_of_an_mpirun_that_ended(output: str, cause: str) -> None:
    assert cause_in(output).startswith(cause)
    assert bool(cause) == bool(cause_in(output))
