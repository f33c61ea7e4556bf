"""Imports of the process that `warm.py` forks from. Done at import: multiprocessing offers no other hook."""

import transformers

from aici_engine.engine import import_engine

import_engine()
LOADED = (transformers.AttentionInterface, transformers.AutoModelForCausalLM, transformers.LlamaForCausalLM)
"""transformers imports the modules of these classes on the first attribute access."""
