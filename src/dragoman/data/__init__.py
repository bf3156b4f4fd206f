"""From files of text to batches of numbers, without torch."""
