"""What a Keras training script imports: ``import ringleader.keras as hvd``."""
