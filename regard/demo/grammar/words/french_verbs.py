"""French conjugation: four tenses, six persons, participles.

Persons are numbered 0 to 5: je, tu, il, nous, vous, ils.
"""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

PRESENT, IMPERFECT, FUTURE, PERFECT = TENSES = ("présent", "imparfait", "futur", "passé composé")

Six = tuple[str, str, str, str, str, str]


class Conjugation(NamedTuple):
    """What a dictionary prints of a verb; the other forms follow from it."""

    present: Six
    future_stem: str
    participle: str
    imperfect_stem: str

    def forms(self, tense: str) -> Six:
        """The six forms of a simple tense."""
        if tense == PRESENT:
            return self.present
        if tense == IMPERFECT:
            # Before i the stem needs neither the e of mangeais nor the ç of commençais.
            soft = re.sub("ge$", "g", self.imperfect_stem).replace("ç", "c")
            return _attach((self.imperfect_stem,) * 3 + (soft,) * 2 + (self.imperfect_stem,), IMPERFECT_ENDINGS)
        return _attach((self.future_stem,) * 6, FUTURE_ENDINGS)


def _attach(stems: tuple[str, ...], endings: str) -> Six:
    a, b, c, d, e, f = (stem + ending for stem, ending in zip(stems, endings.split(), strict=True))
    return a, b, c, d, e, f


IMPERFECT_ENDINGS = "ais ais ait ions iez aient"
FUTURE_ENDINGS = "ai as a ons ez ont"

# infinitive | present: je tu il nous vous ils | stem of the future | participle
IRREGULAR_TABLE = """
être       | suis es est sommes êtes sont                           | ser      | été
avoir      | ai as a avons avez ont                                 | aur      | eu
aller      | vais vas va allons allez vont                          | ir       | allé
faire      | fais fais fait faisons faites font                     | fer      | fait
venir      | viens viens vient venons venez viennent                | viendr   | venu
revenir    | reviens reviens revient revenons revenez reviennent    | reviendr | revenu
devenir    | deviens deviens devient devenons devenez deviennent    | deviendr | devenu
partir     | pars pars part partons partez partent                  | partir   | parti
dormir     | dors dors dort dormons dormez dorment                  | dormir   | dormi
courir     | cours cours court courons courez courent               | courr    | couru
ouvrir     | ouvre ouvres ouvre ouvrons ouvrez ouvrent              | ouvrir   | ouvert
offrir     | offre offres offre offrons offrez offrent              | offrir   | offert
voir       | vois vois voit voyons voyez voient                     | verr     | vu
savoir     | sais sais sait savons savez savent                     | saur     | su
pleuvoir   | - - pleut pleuvons - pleuvent                           | pleuvr   | plu
pouvoir    | peux peux peut pouvons pouvez peuvent                  | pourr    | pu
vouloir    | veux veux veut voulons voulez veulent                  | voudr    | voulu
devoir     | dois dois doit devons devez doivent                    | devr     | dû
prendre    | prends prends prend prenons prenez prennent            | prendr   | pris
apprendre  | apprends apprends apprend apprenons apprenez apprennent | apprendr | appris
comprendre | comprends comprends comprend comprenons comprenez comprennent | comprendr | compris
lire       | lis lis lit lisons lisez lisent                        | lir      | lu
rire       | ris ris rit rions riez rient                           | rir      | ri
dire       | dis dis dit disons dites disent                        | dir      | dit
écrire     | écris écris écrit écrivons écrivez écrivent            | écrir    | écrit
boire      | bois bois boit buvons buvez boivent                    | boir     | bu
croire     | crois crois croit croyons croyez croient               | croir    | cru
connaître  | connais connais connaît connaissons connaissez connaissent | connaîtr | connu
conduire   | conduis conduis conduit conduisons conduisez conduisent | conduir | conduit
construire | construis construis construit construisons construisez construisent | construir | construit
envoyer    | envoie envoies envoie envoyons envoyez envoient        | enverr   | envoyé
"""


def _read_irregular() -> dict[str, Conjugation]:
    verbs = {}
    for line in IRREGULAR_TABLE.strip().splitlines():
        infinitive, present, future_stem, participle = (cell.strip() for cell in line.split("|"))
        a, b, c, d, e, f = present.split()
        stem = "ét" if infinitive == "être" else d.removesuffix("ons")
        verbs[infinitive] = Conjugation((a, b, c, d, e, f), future_stem, participle, stem)
    return verbs


IRREGULAR = _read_irregular()


@cache
def conjugate(infinitive: str) -> Conjugation:
    """The conjugation of an irregular verb from its table, of a regular one (-er, -ir like finir, -re) by rule."""
    if infinitive in IRREGULAR:
        return IRREGULAR[infinitive]
    stem, group = infinitive[:-2], infinitive[-2:]
    if group == "er":
        return _conjugate_er(stem)
    if group == "ir":
        present = _attach((stem,) * 6, "is is it issons issez issent")
        return Conjugation(present, infinitive, stem + "i", stem + "iss")
    if group == "re":
        present = (stem + "s", stem + "s", stem, stem + "ons", stem + "ez", stem + "ent")
        return Conjugation(present, infinitive[:-1], stem + "u", stem)
    raise ValueError(f"{infinitive!r} is no French infinitive")


def _conjugate_er(stem: str) -> Conjugation:
    """parler, with the spelling of manger, commencer, acheter and espérer."""
    back = re.sub("c$", "ç", re.sub("g$", "ge", stem))  # before a and o: nous mangeons, nous commençons
    strong = re.sub("[eé]([^aeiouéèêy])$", r"è\1", stem)  # where the ending is silent: il achète, il espère
    present = _attach((strong,) * 3 + (back, stem, strong), "e es e ons ez ent")
    future_stem = (strong if stem[-2] == "e" else stem) + "er"  # il achètera, but il espérera
    return Conjugation(present, future_stem, stem + "é", back)


def agree(participle: str, gender: str, plural: bool) -> str:
    """allé, allée, allés, allées; a participle in -s takes no second s."""
    if gender == "f":
        return participle + ("es" if plural else "e")
    return participle + "s" if plural and not participle.endswith("s") else participle
