"""What goes wrong while a session waits for other ranks. The argument says what; no rank hangs.

dies         a rank ends while the others wait for it: they get an error
differs      the ranks' graphs differ, and all wait: all get an error
leaves       the main thread ends while another waits in session.run
interrupted  Ctrl-C on a rank that waits for one which comes later
forked       a child process of a rank uses its session
twice        one operation in two calls of session.run at a time: right or refused
"""

import os
import signal
import sys
import threading
import time

import numpy as np
import tensorflow as tf
from refusals import raises

import ringleader.tensorflow as hvd

tf1 = tf.compat.v1
hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
MODE = sys.argv[1]

graph = tf.Graph()
with graph.as_default():
    fed = tf1.placeholder(tf.float32, [])
    name = f"of rank {RANK}" if MODE == "differs" else "common"
    total = hvd.allreduce(fed, op=hvd.Sum, name=name)
    other = hvd.allreduce(fed, op=hvd.Max, name="other")
session = tf1.Session(graph=graph)
assert session.run(other, {fed: RANK}) == SIZE - 1


def fails(words):
    error = raises(tf.errors.UnknownError, "HorovodInternalError", session.run, total, {fed: 1.0})
    assert words in error, error


if MODE == "dies":
    if RANK == SIZE - 1:
        time.sleep(1)
        print("rank done", flush=True)
        os._exit(0)
    fails("")
    print("rank done", flush=True)
    os._exit(0)
elif MODE == "differs":
    fails("every rank waits")
    assert session.run(other, {fed: RANK}) == SIZE - 1  # and all continue
elif MODE == "leaves":
    if RANK == 0:
        threading.Thread(target=lambda: session.run(total, {fed: 1.0}), daemon=True).start()
        time.sleep(1)
elif MODE == "interrupted":
    if RANK == 0:
        threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()

        def waits():
            session.run(total, {fed: 1.0})
            time.sleep(5)

        raises(KeyboardInterrupt, "", waits)
    else:
        time.sleep(3)
        session.run(total, {fed: 1.0})
    assert session.run(other, {fed: RANK}) == SIZE - 1
elif MODE == "forked":
    child = os.fork()
    if child == 0:
        from ringleader.adapters.array_operations import ALLREDUCE
        from ringleader.adapters.process_sets import global_process_set
        from ringleader.adapters.reductions import Sum
        from ringleader.tensorflow.sessions import Request, exchange_of

        engine, works = ALLREDUCE.prepare(
            [np.ones(3)], "child", global_process_set, (Sum,), grouped=False, counted=False
        )
        request = Request("child", 24, engine, works, tuple)
        try:
            exchange_of(engine).add(request)
            request.wait()
        except Exception as error:
            os._exit(0 if "forked" in str(error) else 3)
        os._exit(4)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status == (4 if SIZE == 1 else 0), status
    assert session.run(other, {fed: RANK}) == SIZE - 1
elif MODE == "twice":
    found = []

    def run(value):
        for _ in range(20):
            try:
                found.append((value, float(session.run(total, {fed: value}))))
            except tf.errors.OpError as error:
                assert "at a time" in str(error) or "Horovod" in str(error), error
                found.append((value, None))

    if SIZE == 1:
        threads = [threading.Thread(target=run, args=(value,)) for value in (1.0, 2.0)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == 40 and all(result in (value, None) for value, result in found), found
print("rank done", flush=True)
