"""What every room shares: the problem, its symmetry, the topology, errors, arrays, rounding, how kernels are compiled."""
