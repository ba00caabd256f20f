"""Programs that hand models to servers."""
