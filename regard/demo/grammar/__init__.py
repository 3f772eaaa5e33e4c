"""The grammar of the demo corpus: French and English written side by side, word linked to word.

From the bottom up: surface (letters), french_verbs and english_verbs (conjugation), nouns, adjectives, verbs, settings
(the tables), draft (the dice), noun_phrases, verb_groups, deeds, states, clauses, sentences, stories.
"""
