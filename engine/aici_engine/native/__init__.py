"""The engine's C kernels: sources, compilation for several CPU levels, choice of a level, and the models that run on
them.
"""
