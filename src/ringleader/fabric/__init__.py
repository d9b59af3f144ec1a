"""What is known of NICs, GPUs and links: facts, checks, topology, settings, and proof of the transport."""
