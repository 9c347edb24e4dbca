"""An example of a package that adds two kinds of model and a tokenizer to chainrule by entry points."""
