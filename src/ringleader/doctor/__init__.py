"""What a host or an image has for jobs, tried where that is asked for, as verdicts with a cure."""
