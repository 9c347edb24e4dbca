"""Tokens: text as a sequence of small integers."""
