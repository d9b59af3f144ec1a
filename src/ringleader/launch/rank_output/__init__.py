"""The ranks' output: lines with their prefix, files, and our own standard streams."""
