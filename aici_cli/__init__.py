"""The `aici` command line."""
