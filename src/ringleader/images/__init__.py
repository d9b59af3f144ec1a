"""Images: a short recipe becomes a Dockerfile or an Apptainer definition, checked against version tables."""
