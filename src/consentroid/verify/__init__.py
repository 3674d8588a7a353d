"""The independent checker: numpy, numba and the certificate's document, and nothing from engine or sites."""

from .attested import verify_sums
from .checking import Report, SiteCheck, verify
from .shares import site_share

__all__ = ["Report", "SiteCheck", "site_share", "verify", "verify_sums"]
