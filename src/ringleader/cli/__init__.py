"""Words on the command line become calls below; the only place that prints."""
