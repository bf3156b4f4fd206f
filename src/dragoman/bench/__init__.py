"""This tool beside its peers: same sizes, same sentences, each in a process of its own."""
