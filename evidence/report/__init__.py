"""The report of one run for people: a self-contained page, from a verified bundle alone."""
