"""What a worker does with a leased step: claim, govern, perform, settle."""
