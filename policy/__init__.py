"""What judges actions: documents in, decisions out. Pure."""
