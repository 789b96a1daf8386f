"""What people, other systems and other runs ask of the engine: one module for each verb. Faces call these."""
