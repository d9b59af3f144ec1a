"""What moves the tensors: `engine` agrees between ranks what they do, `transports` carry it, `session` holds
both."""
