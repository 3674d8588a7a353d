"""Transports between coordinator and nodes: siblings behind one call."""
