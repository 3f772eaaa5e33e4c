"""The verbs: a table for each way of building a predicate.

English entries are read by english_verbs.english_verb. Flags: stative (no -ing form), être (auxiliary of the passé
composé), imperfect (no passé composé: elle connaissait, not elle a connu), once (nobody does it every day), place (an
adverbial of place may follow), positive (never negated), event (neither going on nor intended: lose, decide).
"""

from __future__ import annotations

from dataclasses import dataclass

from regard.demo.grammar.words.english_verbs import EnglishVerb, english_verb
from regard.demo.grammar.words.french_verbs import FUTURE, IMPERFECT, PRESENT, Conjugation, conjugate


@dataclass(frozen=True, slots=True, eq=False)  # compared by identity
class Verb:
    """A verb in both languages, and what goes with it: `kinds` of objects or places, a preposition, flags."""

    infinitive: str
    french: Conjugation
    english: EnglishVerb
    kinds: tuple[str, ...]
    preposition: str  # of the French object or infinitive
    partner: str  # the English preposition that translates it
    reflexive: bool
    stative: bool
    with_etre: bool
    perfect: bool  # has a passé composé
    once: bool
    place: bool
    positive: bool
    event: bool
    simple: dict[str, tuple[str, ...]]  # the forms of the simple tenses


def make_verb(french: str, english: str, kinds: str = "", flags: str = "") -> Verb:
    """A verb from the cells of a row: "se lever", "parler à", "aller"."""
    infinitive, _, preposition = french.partition(" ") if not french.startswith(("se ", "s'")) else (french, "", "")
    reflexive = infinitive.startswith(("se ", "s'"))
    infinitive = infinitive.removeprefix("se ").removeprefix("s'")
    conjugation = conjugate(infinitive)
    return Verb(
        infinitive,
        conjugation,
        english_verb(english.partition("+")[0] if preposition else english),
        tuple(kinds.split()),
        preposition,
        english.partition("+")[2].strip() if preposition else "",
        reflexive,
        "stative" in flags,
        "être" in flags or reflexive,
        "imperfect" not in flags,
        "once" in flags,
        "place" in flags,
        "positive" in flags,
        "event" in flags,
        {tense: conjugation.forms(tense) for tense in (PRESENT, IMPERFECT, FUTURE)},
    )


def _read(table: str) -> tuple[Verb, ...]:
    rows = ([cell.strip() for cell in line.split("|")] for line in table.strip().splitlines())
    return tuple(make_verb(*row) for row in rows)


# The first kind of object decides what an object pronoun means: him and her, or it.
TRANSITIVE = _read("""
manger     | eat ate eaten           | fruit food dish                         | place
boire      | drink drank drunk       | drink                                   | place
acheter    | buy bought bought       | object fruit food drink clothing vehicle device reading press luggage furniture
vendre     | sell sold sold          | object fruit clothing vehicle device furniture | once
préparer   | prepare                 | dish
lire       | read read read          | reading press                           | place
écrire     | write wrote written     | reading
regarder   | watch                   | show animal
écouter    | listen + to             | music                                   | place
chercher   | look + for              | object animal luggage device clothing   | place
trouver    | find found found        | object luggage device clothing          | once place event
perdre     | lose lost lost          | object luggage device                   | once place event
attendre   | wait + for              | person transport profession             | place
inviter    | invite                  | person profession
aider      | help                    | person profession
remercier  | thank                   | person profession
rencontrer | meet met met            | person profession                       | place
voir       | see saw seen            | person profession animal building transport | stative place event
connaître  | know knew known         | person profession                       | stative imperfect once
visiter    | visit                   | building country country country city
ouvrir     | open                    | opening container
fermer     | close                   | opening container
laver      | wash                    | clothing vehicle                        | place
réparer    | repair                  | device vehicle furniture                | once place
porter     | wear wore worn          | clothing
prendre    | take took taken         | transport
conduire   | drive drove driven      | vehicle
construire | build built built       | building                                | once
dessiner   | draw drew drawn         | animal building object                  | place
finir      | finish                  | dish reading lesson                     | once
choisir    | choose chose chosen     | clothing object fruit furniture         | once
apprendre  | learn learnt learnt     | lesson language
comprendre | understand understood understood | matter lesson language         | stative
oublier    | forget forgot forgotten | object luggage                          | stative event
""")

# le chocolat, les chats: the whole kind, with an article in French only.
LIKING = _read("""
aimer    | like | food drink animal fruit show language press | stative imperfect
détester | hate | food drink animal fruit show press          | stative imperfect
""")

GIVING = _read("""
donner  | give gave given   | object clothing reading furniture
montrer | show showed shown | object clothing reading device
envoyer | send sent sent    | object reading
offrir  | offer             | object clothing reading furniture
prêter  | lend lent lent    | object device reading clothing luggage
""")

# English takes the person as object (téléphoner à: call), or with a preposition (parler à: talk to).
ADDRESSING = _read("""
parler à     | talk + to
téléphoner à | call
répondre à   | answer
obéir à      | obey | | stative
écrire à     | write wrote written + to
""")

ABOUT = _read("""
parler de       | talk + about  | person profession show reading building matter
rêver de        | dream + about | animal vehicle building country
""")

ACTIVITIES = _read("""
dormir      | sleep slept slept | room
travailler  | work              | room land city country
chanter     | sing sang sung    | room land
danser      | dance             | room land
nager       | swim swam swum    | water
courir      | run ran run       | land
marcher     | walk              | land
voyager     | travel            | country
rire        | laugh             | room land
pleurer     | cry               | room land
étudier     | study             | room city country
jouer       | play              | room land
se reposer  | rest              | room land
habiter     | live              | city country | stative imperfect once
se lever    | get got got + up
s'habiller  | get got got + dressed
se coucher  | go went gone + to bed
""")

MOTION = _read("""
aller     | go went gone          | to   | être
retourner | return                | to   | être
arriver   | arrive                | at   | être
rester    | stay                  | at   | être
venir     | come came come        | from | être
revenir   | come came come + back | from | être
partir    | leave left left       | for  | être
entrer    | enter                 | into | être
tomber    | fall fell fallen      | on   | être once event
""")

# With an infinitive: il veut manger, elle décide de manger, il commence à manger.
WILLING = _read("""
vouloir      | want                    | | stative imperfect
pouvoir      | can                     | | stative imperfect
devoir       | must                    | | stative imperfect
espérer      | hope                    | | stative imperfect positive
préférer     | prefer                  | | stative imperfect positive
décider de   | decide                  | | stative once positive event
oublier de   | forget forgot forgotten | | stative event
commencer à  | start                   | | stative once positive event
""")

SAYING = _read("""
penser  | think thought thought | | stative
croire  | believe               | | stative
dire    | say said said         | | stative
savoir  | know knew known       | | stative imperfect
espérer | hope                  | | stative positive
""")

BE = make_verb("être", "be was been", "", "stative imperfect")
HAVE = make_verb("avoir", "have had had", "", "stative imperfect")
SEEM = make_verb("sembler", "seem", "", "stative imperfect")
BECOME = make_verb("devenir", "become became become", "", "stative être")
PLAY = make_verb("jouer", "play")

RAIN = make_verb("pleuvoir", "rain")
SNOW = make_verb("neiger", "snow")
IT_IS = make_verb("faire", "be was been", "", "stative")  # il fait froid, it is cold
THERE = make_verb("avoir", "be was been", "", "stative")  # il y a, there is
FEEL = make_verb("avoir", "be was been", "", "stative imperfect")  # il a faim, he is hungry

FEELINGS = (("faim", "hungry"), ("soif", "thirsty"), ("froid", "cold"), ("chaud", "hot"), ("peur", "afraid"))
WEATHER = (("froid", "cold"), ("chaud", "hot"), ("beau", "sunny"), ("nuit", "dark"))

# What one does next with the same object: achète une pomme et la mange.
NEXT = {
    first: tuple(v for v in (*TRANSITIVE, *GIVING, *ADDRESSING) if v.infinitive in then.split())
    for first, then in {
        "acheter": "manger boire lire porter donner offrir montrer",
        "trouver": "donner montrer perdre vendre",
        "chercher": "trouver",
        "préparer": "manger",
        "écrire": "envoyer donner montrer",
        "lire": "donner prêter montrer",
        "choisir": "acheter offrir donner",
        "laver": "porter vendre",
        "réparer": "vendre",
        "ouvrir": "fermer",
        "rencontrer": "inviter remercier parler répondre",
        "voir": "inviter aider parler téléphoner",
        "inviter": "remercier parler téléphoner",
        "aider": "parler remercier répondre",
    }.items()
}
