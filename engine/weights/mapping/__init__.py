"""From Hugging Face's configurations and tensor names to GGUF's, one small file a family."""
