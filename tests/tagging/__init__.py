"""Tests of taggers."""
