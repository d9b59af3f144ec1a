"""What operations go through, written to a file while they do: Chrome's trace format, Horovod's names."""
