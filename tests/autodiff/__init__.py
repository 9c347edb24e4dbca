"""The tests of this room share their networks and texts (twins.py)."""
