"""Groups of `torch.distributed` (its library is called c10d): NCCL for GPUs, Gloo for the CPU."""
