"""Scripts for AgentDojo's own environment, without anything of Counterseal's."""
