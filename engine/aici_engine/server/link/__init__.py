"""The link between the API process and the engine process: messages, sockets, the API side's client and supervisor."""
