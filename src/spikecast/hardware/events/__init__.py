"""Who fired which level when: streams, files, recordings, and a simulator that runs on events."""
