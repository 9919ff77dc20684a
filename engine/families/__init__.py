"""Model families: each builder turns the weights of a file into a program, in the order of its formulas."""
