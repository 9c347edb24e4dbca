"""Decoding: from next-token distributions to text, for any model that keeps the contract."""
