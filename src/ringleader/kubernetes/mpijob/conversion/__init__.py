"""Manifests of the versions before v2beta1 become v2beta1 jobs. Pure."""
