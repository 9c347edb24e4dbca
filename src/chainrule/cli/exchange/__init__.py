"""Verbs that read and write the models of other programs."""
