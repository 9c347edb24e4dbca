"""Arguments and options that several verbs share, by what they are about."""
