"""Pictures of meshes, shardings, programs and time: model, scene, then text, SVG or matplotlib."""
