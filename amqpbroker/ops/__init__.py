"""What operators see: for now the log."""
