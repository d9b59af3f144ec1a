"""Version tables: what exists, and what goes with what. Data in ``data/*.toml``, each row with its source."""
