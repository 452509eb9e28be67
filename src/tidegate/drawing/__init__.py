"""Pictures and pages as text: what they share. Nothing needs a network, a script or a font of its own."""
