"""Print, of the forks in the output of `aici run --json`, the fork with the likeliest sampled tokens on average."""

import json
import statistics
import sys

document = json.load(sys.stdin)


def score(fork):
    return statistics.mean(token["logprob"] for token in fork["tokens"] if token["origin"] == "sampled")


print(max(document["forks"], key=score)["text"])
