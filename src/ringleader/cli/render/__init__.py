"""`ringleader render` and its commands, a module for each."""
