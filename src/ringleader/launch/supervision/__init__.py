"""While ranks run: what their agents say, what follows from it, and when all of it is over."""
