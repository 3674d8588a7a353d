"""consentroid: federated K-means with a proof."""

__version__ = "0.1.0"
