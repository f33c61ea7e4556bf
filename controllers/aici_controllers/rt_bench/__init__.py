"""Measure the cost of the controller runtime: `aici bench rt`."""
