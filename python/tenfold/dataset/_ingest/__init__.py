"""Writes rows of files, tables and Python objects as data sets."""
