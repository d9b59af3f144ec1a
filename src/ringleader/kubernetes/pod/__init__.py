"""What runs inside a job's Pods: the wait for the workers, and what mpirun calls in the user's image."""
