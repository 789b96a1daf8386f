"""A chaos test: real processes, real faults by a seeded schedule, and checks that every promise held.

``python -m chaos`` (``make chaos``) runs three workers, two keepers and a face on an embedded PostgreSQL against the
stand-ins. It injects faults everywhere for some minutes, lets the system settle and checks. Not part of the product.
"""
