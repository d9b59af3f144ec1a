"""`ringleader scale`."""
