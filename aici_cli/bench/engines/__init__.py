"""`aici bench engine`: engines in separate processes, with the same work in turn."""
