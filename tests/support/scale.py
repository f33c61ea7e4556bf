"""The number of examples of a property test: `AICI_TEST_SCALE` multiplies the number for long runs."""

import os


def scaled(num_examples: int) -> int:
    return max(1, round(num_examples * float(os.environ.get("AICI_TEST_SCALE", "1"))))
