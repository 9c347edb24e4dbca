"""The verbs that look into models: diagnose, explain and gradcheck."""
