"""The command line: one file a command. No torch is imported before a command runs."""
