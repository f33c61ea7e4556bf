"""Shared memory: worker slots, the mask region, named regions and futexes."""
