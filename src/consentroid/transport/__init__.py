"""Transports in one process and their wrappers: metered, checked, kept in a journal, recorded."""
