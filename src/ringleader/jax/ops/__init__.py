"""Operations on trees of arrays: one module per kind."""
