"""The searches, one file each, and the rules that limit what they write.

search          the protocols Search and Run, Hypothesis, and the run that greedy search and sampling share
greedy, sample, beam, minimum_risk
logit_rules     rules that bar tokens or make them less likely
repetition      find and bar endless repetition
constraints     phrases that a beam's texts must contain
observer        what a search reports to whoever watches it
speculative     a small model drafts, a large one checks
"""
