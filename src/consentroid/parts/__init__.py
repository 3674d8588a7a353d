"""A site whose rows are too many for one process: a sum of parts, here or on workers of dask."""
