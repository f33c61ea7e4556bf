"""The processes that start, watch and end workers: the side process, the spawner, and the supervisor's thread."""
