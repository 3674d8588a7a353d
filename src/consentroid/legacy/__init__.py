"""The box tree over all centroids with its certificate, checkpoint and checker; to be replaced."""
