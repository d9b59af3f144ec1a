"""What moves the tensors: `group_engine` agrees between ranks what they do, `transports` carry it, and
`engine_session` holds both."""
