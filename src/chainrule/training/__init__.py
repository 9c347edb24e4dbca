"""Training: from a corpus to a model, whatever the kind."""
