"""The site of the documentation: its pages copied to one folder, built by Zensical, and checked."""
