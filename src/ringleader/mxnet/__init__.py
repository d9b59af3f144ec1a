"""What an MXNet training script imports: ``import ringleader.mxnet as hvd``."""
