"""`regard compare`: train the translators of the lectures on the same data and compare them."""
