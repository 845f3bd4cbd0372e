"""Pictures of meshes, shardings, communication and time."""
