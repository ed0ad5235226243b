"""Callbacks for other libraries' trainers: Lightning and Hugging Face."""
