"""The training loss: likelihoods, priors, budgets and the objective that adds them up."""

from awn.loss.budget import Budget
from awn.loss.objective import objective, terms
from awn.loss.param_groups import param_groups
from awn.loss.price import Price
from awn.loss.prior import Anneal, Prior

__all__ = ["Anneal", "Budget", "Price", "Prior", "objective", "param_groups", "terms"]
