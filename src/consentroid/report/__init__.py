"""What people read of a run: HTML, plots, files, wording."""
