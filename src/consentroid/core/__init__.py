"""What every room shares: the problem, its symmetry, the topology, errors and the array type."""
