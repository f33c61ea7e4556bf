"""The controller runtime: Wasm guests in processes of their own, driven over shared memory. No torch, no HTTP."""
