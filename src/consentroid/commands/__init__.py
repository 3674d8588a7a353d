"""One file a command; `cli.py` puts them together."""
