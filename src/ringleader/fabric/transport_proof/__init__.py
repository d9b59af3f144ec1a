"""Which wire carried a job's bytes: what hosts gathered, judged."""
