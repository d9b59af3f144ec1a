"""Where GPUs and NICs of a host lie: PCI distance, NIC of each local rank, GPUDirect, matrix and drawing."""
