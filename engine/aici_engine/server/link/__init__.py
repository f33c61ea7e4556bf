"""The link between the API process and the engine process: messages, sockets, client and supervisor."""
