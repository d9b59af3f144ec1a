"""The other end of `served_ranks.py`: a rank answers each line of JSON with one, until no more come."""

import faulthandler
import json
import os
import signal
import socket
import traceback

import ringleader.torch as hvd


def serve(path, carry_out, begin_anew):
    """Answer with what ``carry_out`` returns, or why it failed; null begins a new life of the engine."""
    faulthandler.register(signal.SIGUSR1, all_threads=True)  # the test asks where a rank stands
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(path)
        stream = line.makefile("rw")

        def say(answer):
            stream.write(json.dumps(answer) + "\n")
            stream.flush()

        say({"rank": hvd.rank(), "pid": os.getpid()})
        for text in stream:
            try:
                asked = json.loads(text)
                say({"records": begin_anew() if asked is None else carry_out(asked)})
            except Exception:
                say({"failed": traceback.format_exc()})
                hvd.shutdown()  # so that ranks that wait for this one end theirs too
    hvd.shutdown()
    print("rank done", flush=True)
