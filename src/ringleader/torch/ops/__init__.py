"""The operations that scripts call: each is described here and handed to the engine."""
