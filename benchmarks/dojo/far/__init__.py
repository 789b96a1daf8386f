"""Scripts that run in AgentDojo's own environment and import nothing of Counterseal."""
