"""`ringleader operator` and its commands."""
