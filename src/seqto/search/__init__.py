"""Search: the space of plans and the strategies that choose the next one."""
