"""How a container gets NICs: profiles as data, a user's wish, and what a worker's Pod becomes by it. Pure."""
