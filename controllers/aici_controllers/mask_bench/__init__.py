"""Measure masks: our guests under wasmtime beside other engines, with the same constraints, tokens and clock, in one
run."""
