"""Programs for those who work on tidegate. Not shipped."""
