"""Kubernetes objects that an MPIJob becomes, as JSON documents. Pure."""
