"""Records of a tenant in Counterseal's own database."""
