"""Keys and values of attention, in pages that sequences share and copy on write."""
