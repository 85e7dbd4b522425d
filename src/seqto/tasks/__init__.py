"""What an answer is, and how far two answers are apart."""
