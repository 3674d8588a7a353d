"""The independent checker: numpy, numba and the certificate's document, and nothing from engine or sites."""

from .checking import Report, SiteCheck, verify

__all__ = ["Report", "SiteCheck", "verify"]
