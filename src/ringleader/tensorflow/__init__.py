"""What a TensorFlow training script imports: ``import ringleader.tensorflow as hvd``."""
