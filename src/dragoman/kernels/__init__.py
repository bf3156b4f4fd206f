"""The paper's mathematics done faster; each function names the plain definition it is equal to."""
