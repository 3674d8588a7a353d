"""`python -m consentroid`."""

from .cli.main import main

main()
