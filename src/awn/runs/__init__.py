"""Many runs: a manager that makes each one once, on worker processes of one machine or a Ray cluster."""
