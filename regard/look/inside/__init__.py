"""Every number inside one block or one recurrent step, box by box."""
