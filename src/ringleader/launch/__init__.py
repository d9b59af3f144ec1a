"""A Plan becomes running ranks, and an Outcome comes back."""
