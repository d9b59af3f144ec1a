"""What active tests measured on and between hosts, and who is slow by it."""
