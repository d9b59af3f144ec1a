"""What a JAX training script imports: ``import ringleader.jax as hvd``."""
