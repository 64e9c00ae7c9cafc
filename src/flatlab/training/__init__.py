"""Training: what a run is, and the one call that trains it, logs it, stores it and resumes it."""
