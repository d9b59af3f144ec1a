"""The output of NVIDIA's nccl-tests: written as it writes it, and read in all of its versions. Pure."""
