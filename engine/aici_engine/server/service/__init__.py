"""Code for every protocol: admission, checks of constraints, tokenizing, and opening streams of the engine."""
