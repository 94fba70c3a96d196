"""What reaches the disk and the screen: atomic files, JSON by an allow-list, random streams, progress bars."""
