"""N-gram models: count, smooth, walk."""
