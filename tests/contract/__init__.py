"""The laws of the contract, on every kind of model."""
