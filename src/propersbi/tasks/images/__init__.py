"""Priors of images: distorted letters and digits, or the images of a file."""
