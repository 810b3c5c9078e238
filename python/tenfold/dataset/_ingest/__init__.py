"""Data sets of rows that other programs wrote."""
