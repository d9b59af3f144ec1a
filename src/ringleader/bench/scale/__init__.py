"""Sizes of `ringleader scale`: which there are, how each is run and which rate its ranks report."""
