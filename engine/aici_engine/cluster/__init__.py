"""One model over several machines: a pipeline of stages, each a range of layers in a separate process."""
