"""Converts rows of other programs into data sets."""
