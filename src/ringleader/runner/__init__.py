"""What Horovod keeps in ``horovod.runner`` and scripts import from there; the name is Horovod's."""
