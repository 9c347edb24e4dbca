"""Tests of classifiers."""
