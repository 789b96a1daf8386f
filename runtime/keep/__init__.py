"""What goes round by itself: messages to be sent, bundles to be built, work to be queued, what is left behind."""
