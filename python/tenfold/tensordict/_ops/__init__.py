"""Implements the methods of trees over the operations of `_protocol`; a module for each purpose."""
