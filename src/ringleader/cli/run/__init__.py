"""`ringleader run`: the command, what it shows and what it writes down."""
