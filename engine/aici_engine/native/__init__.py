"""The engine's own kernels in C: which levels of processors they are compiled for, how, and which of them runs here."""
