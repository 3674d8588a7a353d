"""What coordinator and sites agree on: for the search in boxes shift, thresholds and multiples of μ; and what is
fractional."""

from __future__ import annotations

SHIFT = 31 / 64  # θ of the joint minorant; 1 − 2θ = 1/32 and 1 − θ = 33/64 are exact
MULTIPLES = (0.2, 0.5, 1.2, 3.0)  # μ of the cuts, times steepness and width of the box
N_THRESHOLDS = 3  # a side's own edge, the centre, the opposite edge
PARTLY = 0.01  # a column's weight this near to 0 or 1 is as good as 0 or 1
