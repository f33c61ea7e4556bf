"""The Language Model Transport Protocol over WebSocket. README.md beside this file is the protocol's document."""
