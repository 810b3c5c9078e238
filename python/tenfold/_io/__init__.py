"""Files of every format: open, load, save, compare, restore."""
