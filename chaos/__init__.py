"""A hostile world: real processes, real faults, a seeded schedule, and what must hold whatever happens.

``python -m chaos`` (``make chaos``) runs three workers, two keepers and a face on an embedded PostgreSQL against the
stand-ins, breaks everything that it can reach for some minutes, lets it settle and checks. Not part of the product.
"""
