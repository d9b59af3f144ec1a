"""How a container gets NICs: profiles as data, requests, and what a Pod becomes by them. Pure."""
