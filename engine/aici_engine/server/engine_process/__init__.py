"""The engine process: the engine and its controller runtime behind two sockets. Serves no HTTP."""
