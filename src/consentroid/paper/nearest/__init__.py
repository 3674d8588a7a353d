"""The search under the paper's rule 'nearest' at a node."""
