"""awn: neural networks that learn the width of their layers while they train."""

from awn import likelihood
from awn._version import __version__
from awn.axis import Axis
from awn.budget import Budget
from awn.errors import AwnError
from awn.groups import WidthGroup, connect_, count_parameters, find_groups
from awn.importance import Exponential, Importance, PowerLaw, Sigmoid
from awn.mlp import AdaptiveMLP
from awn.objective import Objective, objective
from awn.prior import Anneal, Prior
from awn.state import load_state_dict_
from awn.summary import param_groups, summary, widths
from awn.surgery import Resize, resize_, set_units_
from awn.width import Width
