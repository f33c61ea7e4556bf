"""The engine's side of the conversation with guests, one round a step."""
