"""What the controller runtime costs: `aici bench rt`."""
