"""A program that calls ``horovod.run``, as it is written for Horovod."""

import time

import horovod
import horovod.torch as hvd


def gathered(a: int, b: int, c: int = 0) -> object:
    """What each of two ranks returns."""
    hvd.init()
    found = hvd.allgather_object((hvd.rank(), a + b + c))
    return found if hvd.rank() == 0 else f"rank {hvd.rank()}"


def fails() -> None:
    """One rank fails while the other sleeps."""
    hvd.init()
    if hvd.rank() == 1:
        raise KeyError("lost")
    time.sleep(120)


if __name__ == "__main__":
    assert horovod.run(gathered, (1, 20), {"c": 300}, num_proc=2) == [[(0, 321), (1, 321)], "rank 1"]
    began = time.monotonic()
    try:
        horovod.run(fails, np=2)
    except RuntimeError as error:
        assert str(error) == "mpirun failed with exit code 1", error
        assert isinstance(error.__cause__, KeyError), error.__cause__
    else:
        raise AssertionError("a failed rank went unnoticed")
    assert time.monotonic() - began < 60
    try:
        horovod.run(fails, hosts="localhost:1", np=2)
    except ValueError as error:
        assert "2 ranks asked for" in str(error), error
    else:
        raise AssertionError("too few slots went unnoticed")
    print("all calls are as they should be")
