"""``ringleader lab``: a cluster on one machine."""
