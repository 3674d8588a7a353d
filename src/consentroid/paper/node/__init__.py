"""The solvers of a node's priced clustering problem."""
