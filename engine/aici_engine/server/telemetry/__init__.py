"""Logs, metrics and traces, made from a record of each request. Prompts, answers and keys are never recorded."""
