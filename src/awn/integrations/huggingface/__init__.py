"""Hugging Face: a Trainer callback that learns widths, `save_pretrained` and `from_pretrained`."""

from awn.errors import MissingExtraError

try:
    import accelerate  # noqa: F401  what the Trainer needs
    import transformers  # noqa: F401
except ImportError:
    raise MissingExtraError('awn.huggingface needs transformers: pip install "awn[transformers]"') from None

from awn.integrations.huggingface.callback import AdaptiveWidthCallback
from awn.integrations.huggingface.pretrained import from_pretrained, save_pretrained

__all__ = ["AdaptiveWidthCallback", "from_pretrained", "save_pretrained"]
