"""TensorDicts in files: memory-mapped folders, archives, consolidated files."""
