"""The references that ports are held to, wrapped through their public doors and never edited."""
