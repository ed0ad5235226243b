"""`awn.lightning` is short for `awn.integrations.lightning`."""

from awn.integrations.lightning import AdaptiveWidth as AdaptiveWidth
