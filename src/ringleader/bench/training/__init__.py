"""Training steps of known models on all ranks of one job, coupled in several ways, round by round."""
