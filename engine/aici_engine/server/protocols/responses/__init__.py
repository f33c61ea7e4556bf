"""OpenAI's Responses protocol, `/v1/responses`: items instead of messages, and conversations kept by the server.

request.py       the body of a request, and the turn that it asks for
items.py         input items as clients send them, and as they are kept
tools.py         tools and tool choices
conversation.py  kept items as messages of a prompt
response.py      the response object
output.py        deltas of a turn as events and output items
routes.py        the endpoints; the store of kept responses is in service/response_store.py
"""
