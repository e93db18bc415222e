"""What each script knows of its task."""
