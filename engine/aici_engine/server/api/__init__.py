"""The API process: how it starts and ends, and the ASGI application that it serves."""
