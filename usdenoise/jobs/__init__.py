"""Jobs: a file in, a folder of results out."""
