"""An mpirun that does not end although every rank has, or that does not start every rank: the job ends."""

import pytest

pytestmark = pytest.mark.mpi

NEVER_ENDS = """#!/bin/sh
if [ "$1" = --version ]; then echo "mpirun (Open MPI) 5.0.8"; exit 0; fi
while case "${1##*/}" in python*) false ;; esac; do shift; done
for r in 0 1; do OMPI_COMM_WORLD_RANK=$r OMPI_COMM_WORLD_SIZE=2 "$@" & done
wait
trap "" TERM
sleep 150
"""


@pytest.mark.parametrize(
    ("command", "code"), [pytest.param(("true",), 0, marks=pytest.mark.long), (("sh", "-c", "exit $RANK"), 1)]
)
def test_the_job_ends_with_its_ranks_code(workplace, command, code):
    fake = workplace.tmp / "mpirun"
    fake.write_text(NEVER_ENDS)
    fake.chmod(0o755)
    done = workplace.run("run", "--oversubscribe", "--mpi", str(fake), "-n", "2", *command)
    assert done.returncode == code, done
    assert b"mpirun" not in done.stderr, done.stderr
    assert not workplace.gone_within(5)


STARTS_ONE = NEVER_ENDS.replace("for r in 0 1", "for r in 0")


def test_a_rank_that_is_never_started_is_named(workplace):
    fake = workplace.tmp / "mpirun"
    fake.write_text(STARTS_ONE)
    fake.chmod(0o755)
    words = ("--oversubscribe", "--mpi", str(fake), "-n", "2", "--start-timeout", "2", "--grace", "300")
    done = workplace.run("run", *words, "true")
    assert done.returncode == 3, done
    assert b"start: rank 1 on localhost did not report within 2 s" in done.stderr, done.stderr
    assert b"rank 0" not in done.stderr, done.stderr
    assert not workplace.gone_within(5)
