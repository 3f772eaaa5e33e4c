"""The searches: greedy, sampling, beam, minimum Bayes risk, speculative; and the rules that constrain them."""
