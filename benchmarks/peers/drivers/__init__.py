"""One script per engine. Each runs in an environment of that engine's own, without anything of Counterseal's."""
