"""Who looks at whom: scores, masks, `attend`, multi-head attention, caches and recording."""
