"""What the process has imported that `warm.py` forks from. On purpose at import: multiprocessing knows no other way."""

from aici_engine.engine import import_engine

import_engine()
