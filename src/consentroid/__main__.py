"""`python -m consentroid`."""

from .cli import main

main()
