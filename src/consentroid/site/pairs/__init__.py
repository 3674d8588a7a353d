"""Prices on pairs and triangles of a site's own rows: a semidefinite bound, for rows with many features."""
