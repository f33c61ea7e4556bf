"""AICI REST: controllers are uploaded, tagged and run."""
