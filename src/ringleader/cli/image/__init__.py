"""`ringleader image` and its commands, a module for each."""
