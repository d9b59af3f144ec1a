"""Horovod's path to `util`."""
