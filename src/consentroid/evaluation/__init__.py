"""Baselines, measures of quality and the choice of K."""
