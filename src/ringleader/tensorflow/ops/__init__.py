"""Operations on tensors: one module per kind."""
