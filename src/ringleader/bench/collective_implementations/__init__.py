"""Who carries out the operations of a collective test: our engine, plain MPI, torch.distributed."""
