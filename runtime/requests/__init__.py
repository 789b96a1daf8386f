"""Requests of people, other systems and other runs to the engine: one module for each verb. Faces call these."""
