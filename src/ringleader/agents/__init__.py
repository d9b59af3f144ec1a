"""What runs beside and inside each rank on its host; standard library only."""
