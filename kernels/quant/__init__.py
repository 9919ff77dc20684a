"""Weight types, one a module: the bit layout in the file, the x16 layout in memory, and the unpacking of a block."""
