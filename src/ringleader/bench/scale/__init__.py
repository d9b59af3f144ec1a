"""Sizes of `ringleader scale`: which there are, how each is run and what its ranks tell of their rate."""
