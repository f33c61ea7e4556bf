"""`python -m aici_cli`."""

from aici_cli.main import main

main()
