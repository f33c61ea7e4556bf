"""The Language Model Transport Protocol (LMTP) over a WebSocket. README.md in this folder defines every message."""
