"""The main channel: sequences, the two op sets, masks."""
