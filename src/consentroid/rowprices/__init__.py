"""The coordinator's side of our proof: prices for rows, a search in D dimensions, cells with counts."""
