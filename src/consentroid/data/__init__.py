"""Tables, their preparation, and data sets."""
