"""The work on a leased step: claim, govern, perform, settle."""
