"""A guest in its process: the Wasm instance, the host functions, the state, and the driver for either guest ABI."""
