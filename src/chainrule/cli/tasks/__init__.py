"""What models do for people: a verb for each task."""
