"""What the process has imported that `warm.py` forks from. On purpose at import: multiprocessing knows no other way."""

import transformers

from aici_engine.engine import import_engine

import_engine()
LOADED = (transformers.AttentionInterface, transformers.AutoModelForCausalLM, transformers.LlamaForCausalLM)
"""transformers imports what these need when they are looked up."""
