"""What Horovod keeps in ``horovod.common`` and scripts import from there; the name is Horovod's."""
