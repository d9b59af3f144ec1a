"""What most programs begin with: the engine, with its defaults, and this rank's number among how many."""

import torch

import ringleader.torch as hvd

torch.set_num_threads(1)
hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
