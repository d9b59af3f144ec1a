"""Runs become tables, one self-contained HTML page, JSON."""
