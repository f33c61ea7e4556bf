"""The API process: start, end, the ASGI application, and the routes for operators."""
