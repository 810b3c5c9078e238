"""Files and folders of the supported formats: open, load, save, compare, restore."""
