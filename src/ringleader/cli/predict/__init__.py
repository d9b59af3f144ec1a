"""``ringleader predict``: what more ranks, or another network, would do."""
