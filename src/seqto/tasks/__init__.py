"""What a right answer is."""
