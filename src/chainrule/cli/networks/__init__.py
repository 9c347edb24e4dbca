"""The verbs that look inside networks: diagnose, explain and gradcheck."""
