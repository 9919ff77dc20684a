"""Programs that start `octavo serve`, and measure it as its clients see it; not installed."""
