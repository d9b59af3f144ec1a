"""What `ringleader bench` measured, as values: between pairs, of collectives, of training. Pure."""
