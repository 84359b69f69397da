fill_uninitialized_memory = False
