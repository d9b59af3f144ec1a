"""What Horovod keeps in ``horovod.runner.util``; the name is Horovod's."""
