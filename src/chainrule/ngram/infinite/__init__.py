"""N-grams of any length: contexts of a text sorted, so that those of every length can be counted."""
