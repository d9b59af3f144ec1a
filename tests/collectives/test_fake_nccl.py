"""The code for GPUs on a fake GPU and a fake NCCL, which behave as PyTorch's sources say for 2.8 and 2.13.

NCCL itself is not here: what is launched, in which order and on which GPU is looked at.
"""

from typing import Any

import pytest
from tests.collectives.layouts import CONTRACT, programs

pytestmark = [pytest.mark.mpi, pytest.mark.torch]

OLD = {"RINGLEADER_TRANSPORT": "distributed", "FAKE_TORCH": "2.8"}
NEW = {"RINGLEADER_TRANSPORT": "distributed", "FAKE_TORCH": "2.13"}


@programs(
    (f"on_fake_nccl.py {CONTRACT} torch", "", "3", NEW),
    *((f"on_fake_nccl.py {CONTRACT} torch", "", "4", torch) for torch in (OLD, NEW)),
    # Factors of NCCL's are exact for powers of two.
    *(("on_fake_nccl.py contract_operations.py {transport}", "", "4", torch) for torch in (OLD, NEW)),
    ("on_fake_nccl.py distributed.py operations", "3", "", NEW),
    *((f"on_fake_nccl.py {program}", "", "3", NEW) for program in ("training.py", "sharding.py")),
    *(
        (f"on_fake_nccl.py {program}", "", "3", OLD)
        for program in ("distributed.py operations", "training.py")
    ),
    ("on_fake_nccl.py lives.py 12 uncounted", "3", "", NEW),
    ("on_fake_nccl.py sets.py", "3", "", OLD | {"HOROVOD_DYNAMIC_PROCESS_SETS": "1"}),
)
def test_programs(jobs: Any, program: str, layout: Any, environ: dict[str, str]) -> None:
    jobs.pass_on(layout, program, **environ)
