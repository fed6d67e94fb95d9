"""What the engines' programs share: artifacts, processes, their folders, the command line."""
