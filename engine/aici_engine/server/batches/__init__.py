"""Batches: files of requests, one JSON object a line, that are answered when there is room.

line.py         one line of input, and the line of output that answers the line
answering.py    answers lines, several at a time, with further attempts while the server is full or starting
in_process.py   calls the application without a socket, so that a line passes the same code as a request
"""
