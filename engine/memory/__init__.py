"""What sequences hold of the runner: blocks of keys and values, recurrent states, and what the prefix cache keeps."""
