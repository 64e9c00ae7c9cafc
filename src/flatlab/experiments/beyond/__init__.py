"""Questions that the sources leave open, one file each."""
