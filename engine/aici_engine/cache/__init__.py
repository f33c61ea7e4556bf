"""Keys and values of attention, in pages. Sequences share pages, and copy a shared page before writing to it."""
