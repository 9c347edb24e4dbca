"""What verbs print: lines, tables and JSON."""
