"""Hugging Face: a Trainer callback that learns widths, `save_pretrained` and `from_pretrained`."""

from awn.basics.extra import needs_extra

with needs_extra("awn.huggingface needs transformers", "transformers", "accelerate", "transformers"):
    import accelerate  # noqa: F401  what the Trainer needs
    import transformers  # noqa: F401

from awn.integrations.huggingface.callback import AdaptiveWidthCallback
from awn.integrations.huggingface.pretrained import from_pretrained, save_pretrained

__all__ = ["AdaptiveWidthCallback", "from_pretrained", "save_pretrained"]
