"""Files on disk: model folders, run checkpoints, provenance. No pickle anywhere."""
