"""Tensors on GPUs: which transport carries them, and their order on CUDA streams."""
