"""The paper's method: the loop over prices, the dual rules, the node problems, the replay of its experiments."""
