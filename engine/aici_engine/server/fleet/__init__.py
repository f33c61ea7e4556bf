"""Several engine processes of one model, the replicas, behind one client: routing, death, drain and autoscaling."""
