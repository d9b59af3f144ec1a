"""What moves the tensors."""
