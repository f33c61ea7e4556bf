"""How many examples a property test takes: `AICI_TEST_SCALE` multiplies them for long runs that are recorded."""

import os


def scaled(num_examples: int) -> int:
    return max(1, round(num_examples * float(os.environ.get("AICI_TEST_SCALE", "1"))))
