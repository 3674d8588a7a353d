"""Re-checks certificates with code that shares no kernel with the solvers.

| file             | claim                                                                        | needs rows |
|------------------|------------------------------------------------------------------------------|------------|
| `digests.py`     | nothing was altered after writing                                            | no         |
| `document.py`    | the file has the documented structure                                        | no         |
| `arithmetic.py`  | prices sum to zero, bounds and costs to the totals; excluded leaves are empty | no         |
| `cover.py`       | the leaves cover the domain                                                  | no         |
| `checking.py`    | each node's cost of the incumbent; puts all checks together                  | yes        |
| `node_bounds.py` | each node's bound on each leaf (`search.py`, `rows.py`)                      | yes        |
"""

from .checking import NodeReport, Report, verify

__all__ = ["NodeReport", "Report", "verify"]
