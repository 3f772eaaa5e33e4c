"""The nouns: a table for each kind of thing, since the kind decides what can be done with it.

A row: French, gender, English. A plural that the rules miss follows after a slash; "-" means there is none.
"""

from __future__ import annotations

from typing import NamedTuple


class Noun(NamedTuple):
    """A noun in both languages, singular and plural. `kind` is the name of its table."""

    french: str
    french_plural: str  # "" if there is none
    gender: str
    english: str
    english_plural: str
    kind: str

    @property
    def counted(self) -> bool:
        return self.french_plural != ""


class Name(NamedTuple):
    """A person's name, the same in both languages, or a place's."""

    french: str
    gender: str
    english: str


TABLES = {
    # One can be these: elle est médecin.
    "profession": """
        médecin m doctor; professeur m teacher; avocat m lawyer; boulanger m baker; journaliste m journalist
        facteur m postman/postmen; fermier m farmer; peintre m painter; chanteur m singer; chanteuse f singer
        pilote m pilot; infirmière f nurse; actrice f actress; étudiant m student; étudiante f student
        cuisinier m cook; architecte m architect
    """,
    "person": """
        homme m man/men; femme f woman/women; garçon m boy; fille f girl; enfant m child/children; touriste m tourist
        roi m king/-; reine f queen/-
    """,
    # With an owner, since fille is a daughter only then: sa fille, la fille de Marie.
    "relative": """
        frère m brother; sœur f sister; père m father/-; mère f mother/-; ami m friend; amie f friend; oncle m uncle
        tante f aunt; cousin m cousin; cousine f cousin; fils m son; fille f daughter; voisin m neighbour
        voisine f neighbour; grand-père m grandfather/-; grand-mère f grandmother/-; collègue m colleague
    """,
    "animal": """
        chat m cat; chien m dog; cheval m horse; oiseau m bird; vache f cow; souris f mouse/mice; lapin m rabbit
        mouton m sheep/sheep; singe m monkey; éléphant m elephant; hibou/hiboux m owl; âne m donkey
    """,
    "fruit": """
        pomme f apple; orange f orange; poire f pear; banane f banana; tomate f tomato/tomatoes; œuf m egg
        biscuit m biscuit; cerise f cherry
    """,
    "food": """
        pain m bread/-; fromage m cheese/-; viande f meat/-; chocolat m chocolate/-; riz m rice/-; beurre m butter/-
        confiture f jam/-; miel m honey/-; poisson m fish/-; soupe f soup/-
    """,
    "dish": """
        gâteau m cake; sandwich/sandwichs m sandwich; salade f salad; repas m meal; tarte f pie
        omelette f omelette
    """,
    "drink": """
        eau f water/-; lait m milk/-; café m coffee/-; thé m tea/-; vin m wine/-; jus m juice/-
    """,
    "reading": """
        livre m book; lettre f letter; roman m novel; poème m poem; message m message
        histoire f story; article m article
    """,
    "press": """
        journal m newspaper; magazine m magazine
    """,
    "show": """
        film m film; match/matchs m match; spectacle m show; émission f programme
    """,
    "music": """
        chanson f song; musique f music/-; concert m concert; disque m record
    """,
    "clothing": """
        chemise f shirt; robe f dress; chapeau m hat; manteau m coat; pull m sweater; veste f jacket; jupe f skirt
        écharpe f scarf/scarves
    """,
    "object": """
        clé f key; stylo m pen; cadeau m present; fleur f flower; photo f photo; parapluie m umbrella
        billet m ticket; carte f map
    """,
    "luggage": """
        sac m bag; valise f suitcase
    """,
    "furniture": """
        lampe f lamp; table f table; chaise f chair; tasse f cup; miroir m mirror
    """,
    "device": """
        téléphone m phone; ordinateur m computer; montre f watch; vélo m bike; horloge f clock
    """,
    "vehicle": """
        voiture f car; camion m lorry; taxi m taxi; bus m bus; moto f motorbike
    """,
    "transport": """
        train m train; avion m plane; bateau m boat
    """,
    "building": """
        maison f house; école f school; église f church; palais m palace; château m castle; musée m museum
        hôtel m hotel; tour f tower; bibliothèque f library
    """,
    "opening": """
        porte f door; fenêtre f window
    """,
    "container": """
        boîte f box; armoire f wardrobe
    """,
    "matter": """
        question f question; problème m problem; règle f rule; exercice m exercise
    """,
    "lesson": """
        leçon f lesson; chapitre m chapter
    """,
    # Rooms, streets and landscapes; time_and_place.py says what one does there.
    "place": """
        jardin m garden; parc m park; rue f street; plage f beach; forêt f forest; lac m lake; rivière f river
        montagne f mountain; cuisine f kitchen; chambre f bedroom; bureau m office; gare f station; marché m market
        magasin m shop; restaurant m restaurant; théâtre m theatre; cinéma m cinema; piscine f pool
        hôpital m hospital; banque f bank; ville f town; village m village; pont m bridge; salon m lounge
    """,
    # Languages and games take the article in French and none in English.
    "language": """
        français m French/-; anglais m English/-; espagnol m Spanish/-; italien m Italian/-; allemand m German/-
    """,
    "game": """
        football m football/-; tennis m tennis/-; cartes f cards/-; échecs m chess/-
    """,
    "instrument": """
        piano m piano/-; guitare f guitar/-; violon m violin/-; flûte f flute/-
    """,
}  # fmt: skip

NAMES = {
    "m": "Paul Pierre Thomas Lucas Louis Marc Victor Antoine",
    "f": "Jane Marie Sophie Alice Emma Claire Anne Julie",
}


def french_plural(word: str) -> str:
    """maisons, châteaux, chevaux; repas stays."""
    if word.endswith(("s", "x", "z")):
        return word
    if word.endswith("eau"):
        return word + "x"
    if word.endswith("al"):
        return word[:-2] + "aux"
    return word + "s"


def english_plural(word: str) -> str:
    """cats, boxes, cherries."""
    if word.endswith(("s", "x", "ch", "sh")):
        return word + "es"
    if word.endswith("y") and word[-2] not in "aeiou":
        return word[:-1] + "ies"
    return word + "s"


def _read_noun(row: str, kind: str) -> Noun:
    french, gender, english = row.split()
    french, _, plural = french.partition("/")
    english, _, translated = english.partition("/")
    if translated == "-":
        return Noun(french, "", gender, english, "", kind)
    plural = plural or french_plural(french)
    return Noun(french, plural, gender, english, translated or english_plural(english), kind)


NOUNS: dict[str, tuple[Noun, ...]] = {
    kind: tuple(_read_noun(row, kind) for line in table.strip().splitlines() for row in line.split(";"))
    for kind, table in TABLES.items()
}
BY_FRENCH: dict[str, Noun] = {noun.french: noun for kind in NOUNS for noun in NOUNS[kind] if kind != "relative"}
PEOPLE = tuple(Name(name, gender, name) for gender, names in NAMES.items() for name in names.split())

# The article decides the preposition: en France, en Afrique, au Canada, aux États-Unis.
COUNTRIES = (
    Name("la France", "f", "France"),
    Name("la Italie", "f", "Italy"),
    Name("la Espagne", "f", "Spain"),
    Name("la Allemagne", "f", "Germany"),
    Name("la Angleterre", "f", "England"),
    Name("la Afrique", "f", "Africa"),
    Name("la Suisse", "f", "Switzerland"),
    Name("la Chine", "f", "China"),
    Name("la Inde", "f", "India"),
    Name("la Grèce", "f", "Greece"),
    Name("le Canada", "m", "Canada"),
    Name("le Japon", "m", "Japan"),
    Name("le Brésil", "m", "Brazil"),
    Name("le Portugal", "m", "Portugal"),
    Name("le Mexique", "m", "Mexico"),
    Name("les États-Unis", "m", "the United States"),
)
CITIES = tuple(
    Name(french, "m", english)
    for french, english in (
        ("Paris", "Paris"), ("Londres", "London"), ("Rome", "Rome"), ("Berlin", "Berlin"), ("Lyon", "Lyon"),
        ("Genève", "Geneva"), ("Vienne", "Vienna"), ("Lisbonne", "Lisbon"), ("Amsterdam", "Amsterdam"),
        ("Athènes", "Athens"), ("Moscou", "Moscow"), ("Bruxelles", "Brussels"),
    )
)  # fmt: skip
