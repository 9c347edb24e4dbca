"""Evaluation: how good a model is, on one scale."""
