"""The store of controllers and their tags."""
