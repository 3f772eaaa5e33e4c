"""Attribution: how much each input token changed the probability of each output token."""
