"""Jobs whose number of ranks may change while they run: where their hosts come from, and what follows."""
