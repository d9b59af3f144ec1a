"""One set of versions that fits some constraints, and the recipe with it. Pure."""
