"""Neural language models: small torch networks, and the one adapter that makes language models of them."""
