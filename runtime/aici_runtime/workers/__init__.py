"""The processes in which guests run."""
