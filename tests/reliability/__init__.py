"""What went wrong when chainrule was broken on purpose, each as a small reproduction."""
