"""`ringleader doctor`: the command, its options, and what it prints."""
