"""Memory that backward frees stays with the process, for the next gradient.

Plain PyTorch keeps the gradients that backward makes until `zero_grad`. In buckets each is copied to its
place and freed at once, at the end of the heap. glibc gives a long free end back to the system, so
every backward pass would have the same pages zeroed and mapped again: 2,000 page faults and 5 of 31 ms for
layers of 4 MiB. How long the end may be is twice the largest block that was freed, where blocks beyond 32 MiB
do not count. So one such block is made and freed; it is never touched and costs nothing.
"""

from __future__ import annotations

from functools import cache

import torch

LARGEST_BYTES = (32 << 20) - (64 << 10)
"""As near to glibc's ``DEFAULT_MMAP_THRESHOLD_MAX`` as a block with its header and its alignment may be."""


@cache
def keep_freed_memory() -> None:
    """Have the process keep up to 64 MiB that it has freed. With another C library this changes nothing."""
    torch.empty(LARGEST_BYTES, dtype=torch.uint8)
