"""The MPIJob operator: observe → decide (pure) → apply."""
