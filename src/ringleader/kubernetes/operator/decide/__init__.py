"""Decisions about an MPIJob, one module per policy of its API. Pure: values in, values out."""
