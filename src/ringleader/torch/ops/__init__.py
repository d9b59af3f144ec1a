"""The operations that scripts call, one module for each kind; `submit` hands all of them to the engine."""
