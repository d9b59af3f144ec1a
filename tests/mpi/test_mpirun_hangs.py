"""An mpirun that does not end although every rank has: the job ends, and as its ranks did."""

from __future__ import annotations

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


@pytest.mark.parametrize(("command", "code"), [(("true",), 0), (("sh", "-c", "exit $RANK"), 1)])
def test_the_job_ends_with_its_ranks_code(workplace, command, code):
    fake = workplace.tmp / "mpirun"
    fake.write_text(NEVER_ENDS)
    fake.chmod(0o755)
    done = workplace.run("run", "--oversubscribe", "--mpi", str(fake), "-n", "2", *command)
    assert done.returncode == code, done
    assert b"mpirun" not in done.stderr, done.stderr
    assert not workplace.gone_within(5)
