"""The application: the command line, run directories, and files that describe a problem."""
