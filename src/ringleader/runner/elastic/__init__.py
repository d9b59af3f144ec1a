"""What scripts import of Horovod's elastic launcher, by its paths."""
