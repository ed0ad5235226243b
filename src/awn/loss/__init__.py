"""The training loss: likelihoods, priors, budgets and the objective that adds them up."""
