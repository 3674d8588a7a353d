"""What every room shares: the problem, symmetry, topology, errors, arrays, rounding, and how kernels are compiled."""
