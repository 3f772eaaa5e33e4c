"""The grammar of the demo corpus: it generates French and English together, with links between their words.

From the bottom up: surface (spelling), words/ (the lexicon and conjugation), draft (random choices), noun_phrases,
time_and_place, verb_groups, objects, actions, states, clauses, subordinate_clauses, simple_sentences, sentences,
stories.
"""
