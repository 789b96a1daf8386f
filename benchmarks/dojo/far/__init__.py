"""What runs in AgentDojo's own environment, without anything of Counterseal's."""
