"""Many runs: worker processes on one machine, or a Ray cluster."""
