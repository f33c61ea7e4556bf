"""The loop of a worker in C (`src/`): usual requests are answered without Python. Optional; without, Python answers."""
