"""Draw meshes, shardings, programs and timelines: model, scene, then text, SVG or matplotlib."""
