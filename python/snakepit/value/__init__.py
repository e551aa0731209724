"""Values: their bytes, and who writes and reads them."""
