"""Masks measured: our guests under wasmtime and other engines, the same constraints, tokens and clock, in one run."""
