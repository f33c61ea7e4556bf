"""`aici bench constraint`: what a constraint costs during decoding, in time and in processor time."""
