"""Images of letters and digits, as priors of the camera task."""
