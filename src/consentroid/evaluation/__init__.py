"""Baselines and measures of quality, from sums over sites."""
