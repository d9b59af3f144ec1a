"""Commands that speak to a cluster: submit, status, logs, explain, delete, and run --on kubernetes."""
