"""What `aici bench engine` runs: engines in processes of their own, asked for the same work in turn."""
