"""What a runtime and its engine said to each other, written down and played again."""
