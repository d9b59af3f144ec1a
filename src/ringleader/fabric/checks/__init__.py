"""Checks of one host, comparisons of hosts, and what hosts are expected to have. Pure."""
