"""Who runs next, and with how many rows: admission, the plan of a step, and the pace that it is to keep."""
