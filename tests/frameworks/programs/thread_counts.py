"""A framework takes the threads that the environment says: ``thread_counts.py tensorflow|jax``."""

import os
import sys
from pathlib import Path


def threads(name: str) -> int:
    return sum(path.read_text().strip() == name for path in Path("/proc/self/task").glob("*/comm"))


assert len(os.sched_getaffinity(0)) == os.cpu_count(), "ranks that roam are meant"
if sys.argv[1] == "tensorflow":
    import tensorflow

    tensorflow.linalg.matmul(tensorflow.ones((64, 64)), tensorflow.ones((64, 64))).numpy()
    assert threads("tf_Compute") == int(os.environ["TF_NUM_INTEROP_THREADS"]) == 5
else:
    import jax

    jax.block_until_ready(jax.numpy.ones((64, 64)) @ jax.numpy.ones((64, 64)))
    assert threads("tf_XLAEigen") == int(os.environ["NPROC"]) == 5
print("rank done")
