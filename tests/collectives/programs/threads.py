"""Several threads of a script at once, and ranks that ask for one thing in different ways."""

import threading
import time

import torch
from ranks import RANK, SIZE, hvd

value = torch.full((100,), RANK + 1.0)
TOTAL = SIZE * (SIZE + 1) / 2
failed = []


def work(thread):
    try:
        for step in range(30):
            out = hvd.allreduce(value * step, op=hvd.Sum, name=f"thread {thread} step {step}")
            assert bool((out == TOTAL * step).all())
    except BaseException as error:
        failed.append(error)


# threads that start in another order on each rank
threads = [threading.Thread(target=work, args=(thread,)) for thread in range(4)]
for thread in threads[:: 1 if RANK % 2 else -1]:
    thread.start()
for thread in threads:
    thread.join(60)
assert not failed, failed
assert not any(thread.is_alive() for thread in threads)

# nobody waits, yet it is done: the second thread is at it
handles = [hvd.allreduce_async(value, op=hvd.Sum, name=f"left alone {k}") for k in range(3 + RANK)]
end = time.monotonic() + 30
while not all(hvd.poll(handle) for handle in handles[:3]) and time.monotonic() < end:
    time.sleep(0.001)
assert all(hvd.poll(handle) for handle in handles[:3])
assert not any(hvd.poll(handle) for handle in handles[3:])
hvd.barrier()
if RANK == 0:
    handles += [hvd.allreduce_async(value, op=hvd.Sum, name=f"left alone {k}") for k in range(3, 2 + SIZE)]
for handle in handles[: 3 + (SIZE == 2)]:
    assert bool((hvd.synchronize(handle) == TOTAL).all())
hvd.barrier()

# One name in two threads: the second asks for it while the first waits for the other ranks.
refused = []


def ask(pause):
    time.sleep(pause)
    try:
        hvd.allreduce(torch.ones(3), name="twice")
    except ValueError as error:
        refused.append(str(error))
        hvd.broadcast(torch.ones(3), 0, name="go")


if hvd.rank() == 0:
    both = [threading.Thread(target=ask, args=(pause,)) for pause in (0.0, 0.3)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    assert len(refused) == 1 and "still pending" in refused[0], refused
else:
    time.sleep(1.0)
    hvd.broadcast(torch.ones(3), 0, name="go")
    hvd.allreduce(torch.ones(3), name="twice")

print("rank done", flush=True)
