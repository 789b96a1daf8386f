"""The Model Context Protocol: what an agent may ask for, as tools. A face of the agents' door, and nothing besides."""
