"""Measurements: solvers, rounds, the federation, and their tables."""
