"""Pods as processes: an operator, a fake cluster, and lab hosts for nodes, on which jobs really train."""
