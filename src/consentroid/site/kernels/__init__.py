"""Loops over rows, compiled by numba; only the site's own files call them."""
