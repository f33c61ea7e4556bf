"""Batches: files of requests, one JSON object a line, that are answered when there is room.

line.py         one line of input, and the line of output that answers the line
answering.py    answers lines, several at a time, with further attempts while the server is full or starting
validation.py   checks the lines of a batch before the first line runs
runner.py       runs the batches that the store keeps (service/batch_store.py)
file_routes.py, batch_routes.py   the endpoints /v1/files and /v1/batches
in_process.py   calls the application without a socket, so that a line passes the same code as a request
"""
