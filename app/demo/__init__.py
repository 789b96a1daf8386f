"""The demo (`counterseal demo`): the main job from end to end, against stand-ins on this machine."""
