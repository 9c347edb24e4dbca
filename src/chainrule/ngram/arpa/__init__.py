"""ARPA back-off files: the text format that n-gram toolkits exchange models in."""
