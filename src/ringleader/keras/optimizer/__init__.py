"""Optimizers of Keras that train with the gradients of all ranks."""
