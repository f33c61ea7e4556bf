"""The main channel: commands of protocols v1 and v2, and the sequences of the engine."""
