"""How a container gets NICs: what was asked of a profile, and what a Pod becomes by it. Pure."""
