"""Building blocks, for layers and training loops that `awn.adapt_` and `awn.resize_` do not cover."""

from awn.core.average import follow_widths_
from awn.core.axes import consumed_by, produced_by
from awn.core.axis import Axis
from awn.core.count import count_parameters
from awn.core.even_steps import even_steps_
from awn.core.gate import read_once
from awn.core.groups import WidthGroup, connect_, disconnect_, find_groups
from awn.core.importance import Importance
from awn.core.initialise import gain_of, kaiming_plus_
from awn.core.resize import Resize, set_units_
from awn.core.state import follow_state_dicts_, load_state_dict_
from awn.core.width import Width
from awn.loss.ordered import ordered_loss
from awn.loss.positions import positions
from awn.smaller.activations import activation_magnitudes, unit_activations
from awn.smaller.choose import CurvePoint
from awn.smaller.remove import prune, remove_units
from awn.smaller.repair import Repair, RepairedLayer, repair_

__all__ = [
    "Axis",
    "CurvePoint",
    "Importance",
    "Repair",
    "RepairedLayer",
    "Resize",
    "Width",
    "WidthGroup",
    "activation_magnitudes",
    "connect_",
    "consumed_by",
    "count_parameters",
    "disconnect_",
    "even_steps_",
    "find_groups",
    "follow_state_dicts_",
    "follow_widths_",
    "gain_of",
    "kaiming_plus_",
    "load_state_dict_",
    "ordered_loss",
    "positions",
    "produced_by",
    "prune",
    "read_once",
    "remove_units",
    "repair_",
    "set_units_",
    "unit_activations",
]
