"""One step of the engine: plan, execute, commit."""
