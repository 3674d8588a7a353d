"""A transport in one process, wrappers around any transport (metered, checked, journal, recorder), and the channel."""
