"""`awn.huggingface` is short for `awn.integrations.huggingface`."""

from awn.integrations.huggingface import AdaptiveWidthCallback as AdaptiveWidthCallback
from awn.integrations.huggingface import from_pretrained as from_pretrained
from awn.integrations.huggingface import save_pretrained as save_pretrained
