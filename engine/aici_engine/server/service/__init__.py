"""What every protocol uses: admission, checks of constraints, the vocabulary, and streams of the engine."""
