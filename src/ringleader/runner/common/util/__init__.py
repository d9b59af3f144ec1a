"""Small parts of the launcher, by Horovod's paths."""
