"""Rank 1 never takes part; rank 0 waits for it in a barrier."""

import os
import time

import ringleader.torch as hvd

hvd.init()
if hvd.rank() == 1:
    time.sleep(6)
    os._exit(0)
try:
    hvd.barrier()
except hvd.HorovodInternalError as error:
    print(error, flush=True)
os._exit(0)
