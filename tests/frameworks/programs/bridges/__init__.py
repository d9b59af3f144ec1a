"""Bridges from the contract's NumPy arrays to frameworks: one module for each way that a script runs one."""
