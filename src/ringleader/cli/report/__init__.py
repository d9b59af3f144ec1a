"""``ringleader report``: stored runs as text, as a page, compared, guarded, served."""
