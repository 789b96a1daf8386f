"""One script per engine. Each runs in its engine's own environment, without any of Counterseal's packages."""
