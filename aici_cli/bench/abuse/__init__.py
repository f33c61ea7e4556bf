"""`aici bench abuse`: what hostile clients do to everybody else.

`command.py` runs the attacks of `attacks.py` in turn. Three processes take part: the server, the victim (`victim.py`)
and the attacker (`attacker.py`). `guests.py` holds the hostile controllers.
"""
