"""The acquisition, its Casorati matrix, and which entries of it are observed and sampled."""
