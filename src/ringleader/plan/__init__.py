"""What a job is, and where its ranks go: pure values. `ringleader.launch` carries them out."""
