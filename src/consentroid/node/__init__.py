"""What runs at a data holder: its worker and the solvers of its priced clustering problem."""
