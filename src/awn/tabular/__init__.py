"""Tables: read them, decide what each column holds, turn them into numbers for a network."""
