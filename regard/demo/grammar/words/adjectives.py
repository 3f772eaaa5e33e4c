"""The adjectives: their forms, their place, and the kinds of nouns that they fit."""

from __future__ import annotations

from typing import NamedTuple

from regard.demo.grammar.words.nouns import NOUNS, french_plural


class Adjective(NamedTuple):
    """French forms by gender and number, the English word, and whether it stands before the noun."""

    masculine: str
    feminine: str
    english: str
    before: bool

    def form(self, gender: str, plural: bool) -> str:
        """The form that agrees."""
        word = self.feminine if gender == "f" else self.masculine
        return french_plural(word) if plural else word


# Forms before a vowel: un bel homme, cet homme, mon amie.
BEFORE_VOWEL = {
    "beau": "bel", "vieux": "vieil", "nouveau": "nouvel", "ce": "cet", "ma": "mon", "ta": "ton", "sa": "son",
}  # fmt: skip


def feminine(masculine: str) -> str:
    """petite, rouge, heureuse, chère, italienne; the others are in the table."""
    if masculine.endswith("e"):
        return masculine
    for ending, replaced in (("eux", "euse"), ("er", "ère"), ("en", "enne"), ("on", "onne")):
        if masculine.endswith(ending):
            return masculine.removesuffix(ending) + replaced
    return masculine + "e"


# A second adjective must be one that English puts next to the noun: a small black cat.
INNERMOST = frozenset({
    "red", "blue", "green", "yellow", "black", "white", "grey",
    "French", "English", "Italian", "German", "Spanish", "Japanese", "American",
})  # fmt: skip

# vieux garçon is a bachelor; children are young anyway.
UNFIT = frozenset((a, n) for a in ("vieux", "jeune", "riche") for n in ("garçon", "fille", "enfant"))

COLOURS = "clothing vehicle luggage furniture"

# French (/ feminine) | English | place: before, after the noun, or only as predicate; mood: a passing one | kinds
TABLE = f"""
jeune             | young       | before    | person profession
vieux/vieille     | old         | before    | person profession animal building vehicle clothing reading place furniture
petit             | small       | before    | animal building object clothing device opening place furniture container
petit             | short       | predicate | person
grand             | big         | before    | animal building place opening dish luggage container
grand             | tall        | predicate | person
beau/belle        | beautiful   | before    | animal building clothing place music
joli              | pretty      | before    | object clothing furniture
bon               | good        | before    | profession food dish drink fruit show reading
nouveau/nouvelle  | new         | before    | profession clothing vehicle building reading device
long/longue       | long        | before    | reading show lesson
mauvais           | bad         | before    | show dish
intelligent       | intelligent | after     | person profession animal
célèbre           | famous      | after     | profession building
riche             | rich        | after     | person profession
timide            | shy         | after     | person
sérieux           | serious     | after     | person profession
courageux         | brave       | after     | person
patient           | patient     | after     | profession
drôle             | funny       | after     | person show
fatigué           | tired       | mood      | person animal
content           | happy       | mood      | person
heureux           | happy       | mood      | person
triste            | sad         | mood      | person
malade            | ill         | mood      | person animal
prêt              | ready       | mood      | person
seul              | alone       | mood      | person
occupé            | busy        | mood      | person
inquiet/inquiète  | worried     | mood      | person
triste            | sad         | after     | music reading
français          | French      | after     | profession food show reading vehicle
anglais           | English     | after     | profession show reading vehicle
italien           | Italian     | after     | profession food show vehicle
allemand          | German      | after     | profession vehicle show
espagnol          | Spanish     | after     | profession show reading
japonais          | Japanese    | after     | profession show device
américain         | American    | after     | profession show vehicle
rouge             | red         | after     | {COLOURS}
bleu              | blue        | after     | {COLOURS}
vert              | green       | after     | {COLOURS}
jaune             | yellow      | after     | {COLOURS}
noir              | black       | after     | animal {COLOURS}
blanc/blanche     | white       | after     | animal {COLOURS}
gris              | grey        | after     | animal {COLOURS}
cher              | expensive   | after     | clothing vehicle device furniture
lourd             | heavy       | after     | luggage furniture
intéressant       | interesting | after     | reading show press lesson
difficile         | difficult   | after     | matter lesson
facile            | easy        | after     | matter lesson
important         | important   | after     | matter
délicieux         | delicious   | after     | food dish fruit
frais/fraîche     | fresh       | after     | food fruit
chaud             | hot         | after     | drink
froid             | cold        | after     | drink
moderne           | modern      | after     | building device
rapide            | fast        | after     | vehicle transport
tranquille        | quiet       | after     | place
vide              | empty       | predicate | building container luggage
ouvert            | open        | predicate | opening container
fermé             | closed      | predicate | opening container
"""

Tables = dict[str, tuple[Adjective, ...]]


def _read() -> tuple[Tables, Tables, Tables]:
    """By kind of noun: the adjectives beside it, those used as its predicate, and those for temporary states."""
    beside: dict[str, list[Adjective]] = {kind: [] for kind in NOUNS}
    said: dict[str, list[Adjective]] = {kind: [] for kind in NOUNS}
    passing: dict[str, list[Adjective]] = {kind: [] for kind in NOUNS}
    for line in TABLE.strip().splitlines():
        french, english, place, kinds = (cell.strip() for cell in line.split("|"))
        masculine, _, irregular = french.partition("/")
        adjective = Adjective(masculine, irregular or feminine(masculine), english, place == "before")
        for kind in kinds.split():
            (passing if place == "mood" else said)[kind].append(adjective)
            if place in ("before", "after"):
                beside[kind].append(adjective)
    # A relative and a person of a profession are persons too; "new" does not describe a doctor as a person.
    for kind in ("profession", "relative"):
        said[kind], passing[kind] = said["person"], passing["person"]
    beside["relative"] = [adjective for adjective in beside["person"] if not adjective.before]
    return _freeze(beside), _freeze(said), _freeze(passing)


def _freeze(tables: dict[str, list[Adjective]]) -> Tables:
    return {kind: tuple(adjectives) for kind, adjectives in tables.items()}


BESIDE, SAID, PASSING = _read()
