"""The laboratory: leave one design choice out at a time and see what happens."""
