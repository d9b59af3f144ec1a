"""A Kubernetes API server as we see it: its objects are plain JSON, its verbs a small port."""
