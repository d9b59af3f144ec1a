"""The operations that scripts call, one module for each kind; `submit_operation` hands them to the engine."""
