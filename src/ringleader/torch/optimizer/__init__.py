"""``DistributedOptimizer``: the gradients of all ranks before every step. Path and name are Horovod's."""

from ringleader.torch.optimizer.distributed_optimizer import DistributedOptimizer

__all__ = ["DistributedOptimizer"]
