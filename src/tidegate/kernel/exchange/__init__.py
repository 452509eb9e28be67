"""The exchange: records are packed before the shuffle and received behind it."""
