"""Records of a training: the figures of its steps, written while it goes on and read when it is over.

metrics_log.py  metrics.jsonl, and the loggers beside it
loggers.py      the same figures for wandb, trackio, MLflow and TensorBoard
curves.py       the figures of a run folder or a model, as arrays
"""
