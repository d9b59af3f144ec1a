"""`ringleader bench`."""
