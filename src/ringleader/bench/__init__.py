"""Jobs at several sizes, measured."""
