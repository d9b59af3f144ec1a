"""A script as it is written for Horovod: ``horovodrun_script.py [EXIT_CODE_OF_RANK_1]``."""

import os
import sys

import horovod.torch as hvd
import torch
from horovod.runner.common.util.env import get_env_rank_and_size

hvd.init()
assert get_env_rank_and_size() == (hvd.rank(), hvd.size())
assert int(os.environ["HOROVOD_LOCAL_RANK"]) == hvd.local_rank()
assert int(os.environ["HOROVOD_LOCAL_SIZE"]) == hvd.local_size()
assert int(os.environ["HOROVOD_CROSS_RANK"]) == hvd.cross_rank()
assert int(os.environ["HOROVOD_CROSS_SIZE"]) == hvd.cross_size()
total = hvd.allreduce(torch.ones(4) * (hvd.rank() + 1), op=hvd.Sum, name="total")
print(f"{hvd.rank()} of {hvd.size()}: {total.tolist()}, mine is {os.environ.get('MINE')}")
print("for people", file=sys.stderr)
if len(sys.argv) > 1 and hvd.rank() == 1:
    sys.stdout.flush()
    os._exit(int(sys.argv[1]))
print("rank done")
