"""Converts objects of torch, numpy and tensordict. Imports these packages on demand."""
