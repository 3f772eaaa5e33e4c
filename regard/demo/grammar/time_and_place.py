"""When and where: time phrases with the tenses that they fit, and places with what one does there.

Words are paired in order if both sides have as many; otherwise numbers say which belong together: "il:1 y:1 a:1".
"""

from __future__ import annotations

from typing import NamedTuple

from regard.demo.grammar.draft import Draft
from regard.demo.grammar.noun_phrases import name_phrase, the_noun
from regard.demo.grammar.surface import Phrase, Word, prepose
from regard.demo.grammar.words.french_verbs import FUTURE, IMPERFECT, PERFECT, PRESENT
from regard.demo.grammar.words.nouns import BY_FRENCH, CITIES, COUNTRIES, Name, Noun


class Time(NamedTuple):
    """A tense and how English sees it: plain, now (is eating), habit (used to eat), later (present for future)."""

    tense: str
    aspect: str = "plain"


MONTHS = (("janvier", "January"), ("février", "February"), ("mars", "March"), ("avril", "April"), ("mai", "May"),
          ("juin", "June"), ("juillet", "July"), ("août", "August"), ("septembre", "September"),
          ("octobre", "October"), ("novembre", "November"), ("décembre", "December"))  # fmt: skip
DAYS = (("lundi", "Monday"), ("mardi", "Tuesday"), ("mercredi", "Wednesday"), ("jeudi", "Thursday"),
        ("vendredi", "Friday"), ("samedi", "Saturday"), ("dimanche", "Sunday"))  # fmt: skip
NUMBERS = (("deux", "two"), ("trois", "three"), ("quatre", "four"), ("cinq", "five"), ("six", "six"), ("dix", "ten"))

# French | English, a number after a word links it; MONTH, DAY and NUMBER stand for a word of the lists above.
# Words without a number have no partner. A month comes up more often than the rest: it has more rows.
TIMES = {
    (PRESENT, "plain"): """
        en:1 MONTH:2 | in:1 MONTH:2
        en:1 MONTH:2 | in:1 MONTH:2
        en:1 MONTH:2 | in:1 MONTH:2
        en:1 MONTH:2 | in:1 MONTH:2
        aujourd':1 hui:1 | today:1
        à:1 midi:2 | at:1 noon:2
    """,
    (PRESENT, "habit"): """
        en:1 MONTH:2 | in:1 MONTH:2
        en:1 MONTH:2 | in:1 MONTH:2
        en:1 MONTH:2 | in:1 MONTH:2
        en:1 MONTH:2 | in:1 MONTH:2
        chaque:1 jour:2 | every:1 day:2
        chaque:1 semaine:2 | every:1 week:2
        chaque:1 DAY:2 | every:1 DAY:2
        le:1 matin:2 | in:1 the:1 morning:2
        le:1 soir:2 | in:1 the:1 evening:2
        tous:1 les:1 jours:2 | every:1 day:2
    """,
    (PRESENT, "now"): """
        maintenant:1 | now:1
        en:1 ce:1 moment:1 | right:1 now:1
    """,
    (PERFECT, "plain"): """
        hier:1 | yesterday:1
        hier:1 soir:2 | yesterday:1 evening:2
        ce:1 matin:2 | this:1 morning:2
        DAY:1 dernier:2 | last:2 DAY:1
        la semaine:1 dernière:2 | last:2 week:1
        le mois:1 dernier:2 | last:2 month:1
        la année:1 dernière:2 | last:2 year:1
        il:1 y:1 a:1 NUMBER:2 jours:3 | NUMBER:2 days:3 ago:1
        il:1 y:1 a:1 NUMBER:2 semaines:3 | NUMBER:2 weeks:3 ago:1
        en:1 MONTH:2 | in:1 MONTH:2
        en:1 MONTH:2 | in:1 MONTH:2
        en:1 MONTH:2 | in:1 MONTH:2
        en:1 MONTH:2 | in:1 MONTH:2
        DAY:1 | on DAY:1
    """,
    (IMPERFECT, "habit"): """
        autrefois:1 | in:1 the:1 past:1
        chaque:1 été:2 | every:1 summer:2
        chaque:1 DAY:2 | every:1 DAY:2
        tous:1 les:1 jours:2 | every:1 day:2
    """,
    (IMPERFECT, "plain"): """
        à:1 ce:2 moment-là:3 | at:1 that:2 moment:3
        hier:1 soir:2 | yesterday:1 evening:2
        à:1 midi:2 | at:1 noon:2
    """,
    (FUTURE, "plain"): """
        demain:1 | tomorrow:1
        demain:1 matin:2 | tomorrow:1 morning:2
        ce:1 soir:2 | this:1 evening:2
        bientôt:1 | soon:1
        DAY:1 prochain:2 | next:2 DAY:1
        la semaine:1 prochaine:2 | next:2 week:1
        le mois:1 prochain:2 | next:2 month:1
        la année:1 prochaine:2 | next:2 year:1
        dans:1 NUMBER:2 jours:3 | in:1 NUMBER:2 days:3
        dans:1 NUMBER:2 semaines:3 | in:1 NUMBER:2 weeks:3
        en:1 MONTH:2 | in:1 MONTH:2
        en:1 MONTH:2 | in:1 MONTH:2
        en:1 MONTH:2 | in:1 MONTH:2
        en:1 MONTH:2 | in:1 MONTH:2
        DAY:1 | on DAY:1
    """,
}

LISTS = {"MONTH": MONTHS, "DAY": DAYS, "NUMBER": NUMBERS}
Slot = tuple[str, int]  # a word or the name of a list, and its number, 0 for none


def _read_times(table: str) -> tuple[tuple[list[Slot], list[Slot]], ...]:
    def slots(side: str) -> list[Slot]:
        return [(word, int(number or 0)) for word, _, number in (w.partition(":") for w in side.split())]

    rows = (line.split("|") for line in table.strip().splitlines())
    return tuple((slots(french), slots(english)) for french, english in rows)


TIME_PHRASES = {key: _read_times(table) for key, table in TIMES.items()}


def time_phrase(d: Draft, time: Time) -> Phrase:
    """A time phrase that fits the tense, and the aspect."""
    french, english = d.pick(TIME_PHRASES[time])
    links = {number: d.link() for _, number in french}
    words = {name: d.pick(choices) for name, choices in LISTS.items() if any(w == name for w, _ in french)}
    d.tag("time phrase")
    if "NUMBER" in words:
        d.tag("number")

    def side(slots: list[Slot], language: int) -> list[Word]:
        spelled = ((words[word][language] if word in words else word, number) for word, number in slots)
        return [(word, links[number] if number else ()) for word, number in spelled]

    return Phrase(side(french, 0), side(english, 1))


# kind of place: French preposition, English preposition, nouns
SPOTS = {
    "room": """
        dans | in | maison cuisine chambre salon bureau
        à    | at | bibliothèque hôtel bureau théâtre restaurant
    """,
    "land": """
        dans         | in          | jardin parc rue forêt
        sur          | on          | plage
        devant       | in front of | église école gare musée maison château hôtel
        derrière     | behind      | maison église gare château école
        près de      | near        | lac rivière gare château parc pont musée
        à côté de    | next to     | hôtel marché hôpital musée école jardin magasin
        à            | at          | marché
    """,
    "water": """
        dans | in | lac rivière
        à    | at | piscine
    """,
    "to": """
        à | to | marché gare musée théâtre cinéma bibliothèque piscine hôpital restaurant plage bureau parc banque hôtel
        dans | to | forêt jardin
    """,
    "at": """
        à    | at | marché gare musée théâtre hôtel restaurant hôpital bureau
        dans | in | jardin parc village
    """,
    "from": """
        de | from | marché gare musée théâtre cinéma bibliothèque piscine hôpital bureau école village plage
    """,
    "for": """
        pour | for | gare plage marché montagne
    """,
    "into": """
        dans | | maison jardin cuisine magasin école église restaurant banque chambre
    """,
    "on": """
        dans   | in          | rue jardin cuisine rivière
        sur    | on          | plage
        devant | in front of | maison église gare
    """,
}


def _read_spots(table: str) -> tuple[tuple[str, str, Noun], ...]:
    rows = ([cell.strip() for cell in line.split("|")] for line in table.strip().splitlines())
    return tuple((french, english, BY_FRENCH[noun]) for french, english, nouns in rows for noun in nouns.split())


PLACES = {kind: _read_spots(table) for kind, table in SPOTS.items()}


def place_phrase(d: Draft, kind: str) -> Phrase:
    """A place of the kind: in the garden, near the lake, to the market."""
    french, english, noun = d.pick(PLACES[kind])
    d.tag("place phrase")
    where = the_noun(d, noun)
    link = d.link()
    *lead, preposition = french.split()
    words = [*((w, link) for w in lead), *prepose((preposition, link), where.french)]
    if len(words) < len(lead) + 1 + len(where.french):
        d.tag("contraction")
    return Phrase(words, [*((w, link) for w in english.split()), *where.english])


def country_phrase(d: Draft, country: Name, english: str) -> Phrase:
    """In or to a country: en France, au Canada, aux États-Unis, with the English preposition given."""
    d.tag("place phrase")
    article = country.french.split()[0]
    where = name_phrase(d, country)
    link = d.link()
    if article == "la":
        return Phrase([("en", link), *where.french[1:]], [(english, link), *where.english])
    d.tag("contraction")
    return Phrase(prepose(("à", link), where.french), [(english, link), *where.english])


def city_phrase(d: Draft, city: Name, english: str) -> Phrase:
    """In or to a city: à Paris."""
    d.tag("place phrase")
    where = name_phrase(d, city)
    link = d.link()
    return Phrase([("à", link), *where.french], [(english, link), *where.english])


def somewhere(d: Draft, kinds: tuple[str, ...], english: str = "in") -> Phrase:
    """A place of one of the kinds; cities and countries with the English preposition given."""
    kind = d.pick(kinds)
    if kind == "city":
        return city_phrase(d, d.pick(CITIES), english)
    if kind == "country":
        return country_phrase(d, d.pick(COUNTRIES), english)
    return place_phrase(d, kind)
