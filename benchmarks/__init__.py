"""Programs that measure Octavo against llama.cpp, and make the models for it; not installed."""
