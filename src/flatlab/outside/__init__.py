"""What lies outside flatlab: the user's functions by name, progress, tables in a notebook."""
