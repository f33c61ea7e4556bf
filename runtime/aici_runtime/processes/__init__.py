"""The processes of the runtime, and how they live and die."""
