"""The morphology of the demo corpus against hand-written tables of known forms."""

from __future__ import annotations

import pytest

from regard.demo.grammar.surface import choose_articles, elide, join, prepose, split_words
from regard.demo.grammar.words.adjectives import feminine
from regard.demo.grammar.words.english_verbs import english_verb, verb_group
from regard.demo.grammar.words.french_verbs import agree, conjugate
from regard.demo.grammar.words.nouns import english_plural, french_plural

# infinitive: présent | imparfait | futur | participe
FRENCH = {
    "parler": "parle parles parle parlons parlez parlent | parlais parlais parlait parlions parliez parlaient"
    " | parlerai parleras parlera parlerons parlerez parleront | parlé",
    "manger": "mange manges mange mangeons mangez mangent | mangeais mangeais mangeait mangions mangiez mangeaient"
    " | mangerai mangeras mangera mangerons mangerez mangeront | mangé",
    "commencer": "commence commences commence commençons commencez commencent"
    " | commençais commençais commençait commencions commenciez commençaient"
    " | commencerai commenceras commencera commencerons commencerez commenceront | commencé",
    "acheter": "achète achètes achète achetons achetez achètent"
    " | achetais achetais achetait achetions achetiez achetaient"
    " | achèterai achèteras achètera achèterons achèterez achèteront | acheté",
    "lever": "lève lèves lève levons levez lèvent | levais levais levait levions leviez levaient"
    " | lèverai lèveras lèvera lèverons lèverez lèveront | levé",
    "espérer": "espère espères espère espérons espérez espèrent"
    " | espérais espérais espérait espérions espériez espéraient"
    " | espérerai espéreras espérera espérerons espérerez espéreront | espéré",
    "étudier": "étudie étudies étudie étudions étudiez étudient"
    " | étudiais étudiais étudiait étudiions étudiiez étudiaient"
    " | étudierai étudieras étudiera étudierons étudierez étudieront | étudié",
    "envoyer": "envoie envoies envoie envoyons envoyez envoient"
    " | envoyais envoyais envoyait envoyions envoyiez envoyaient"
    " | enverrai enverras enverra enverrons enverrez enverront | envoyé",
    "finir": "finis finis finit finissons finissez finissent"
    " | finissais finissais finissait finissions finissiez finissaient"
    " | finirai finiras finira finirons finirez finiront | fini",
    "vendre": "vends vends vend vendons vendez vendent | vendais vendais vendait vendions vendiez vendaient"
    " | vendrai vendras vendra vendrons vendrez vendront | vendu",
    "être": "suis es est sommes êtes sont | étais étais était étions étiez étaient"
    " | serai seras sera serons serez seront | été",
    "avoir": "ai as a avons avez ont | avais avais avait avions aviez avaient"
    " | aurai auras aura aurons aurez auront | eu",
    "aller": "vais vas va allons allez vont | allais allais allait allions alliez allaient"
    " | irai iras ira irons irez iront | allé",
    "venir": "viens viens vient venons venez viennent | venais venais venait venions veniez venaient"
    " | viendrai viendras viendra viendrons viendrez viendront | venu",
    "partir": "pars pars part partons partez partent | partais partais partait partions partiez partaient"
    " | partirai partiras partira partirons partirez partiront | parti",
    "courir": "cours cours court courons courez courent | courais courais courait courions couriez couraient"
    " | courrai courras courra courrons courrez courront | couru",
    "ouvrir": "ouvre ouvres ouvre ouvrons ouvrez ouvrent | ouvrais ouvrais ouvrait ouvrions ouvriez ouvraient"
    " | ouvrirai ouvriras ouvrira ouvrirons ouvrirez ouvriront | ouvert",
    "voir": "vois vois voit voyons voyez voient | voyais voyais voyait voyions voyiez voyaient"
    " | verrai verras verra verrons verrez verront | vu",
    "savoir": "sais sais sait savons savez savent | savais savais savait savions saviez savaient"
    " | saurai sauras saura saurons saurez sauront | su",
    "pouvoir": "peux peux peut pouvons pouvez peuvent | pouvais pouvais pouvait pouvions pouviez pouvaient"
    " | pourrai pourras pourra pourrons pourrez pourront | pu",
    "vouloir": "veux veux veut voulons voulez veulent | voulais voulais voulait voulions vouliez voulaient"
    " | voudrai voudras voudra voudrons voudrez voudront | voulu",
    "devoir": "dois dois doit devons devez doivent | devais devais devait devions deviez devaient"
    " | devrai devras devra devrons devrez devront | dû",
    "prendre": "prends prends prend prenons prenez prennent | prenais prenais prenait prenions preniez prenaient"
    " | prendrai prendras prendra prendrons prendrez prendront | pris",
    "lire": "lis lis lit lisons lisez lisent | lisais lisais lisait lisions lisiez lisaient"
    " | lirai liras lira lirons lirez liront | lu",
    "rire": "ris ris rit rions riez rient | riais riais riait riions riiez riaient"
    " | rirai riras rira rirons rirez riront | ri",
    "dire": "dis dis dit disons dites disent | disais disais disait disions disiez disaient"
    " | dirai diras dira dirons direz diront | dit",
    "écrire": "écris écris écrit écrivons écrivez écrivent | écrivais écrivais écrivait écrivions écriviez écrivaient"
    " | écrirai écriras écrira écrirons écrirez écriront | écrit",
    "boire": "bois bois boit buvons buvez boivent | buvais buvais buvait buvions buviez buvaient"
    " | boirai boiras boira boirons boirez boiront | bu",
    "croire": "crois crois croit croyons croyez croient | croyais croyais croyait croyions croyiez croyaient"
    " | croirai croiras croira croirons croirez croiront | cru",
    "connaître": "connais connais connaît connaissons connaissez connaissent"
    " | connaissais connaissais connaissait connaissions connaissiez connaissaient"
    " | connaîtrai connaîtras connaîtra connaîtrons connaîtrez connaîtront | connu",
    "conduire": "conduis conduis conduit conduisons conduisez conduisent"
    " | conduisais conduisais conduisait conduisions conduisiez conduisaient"
    " | conduirai conduiras conduira conduirons conduirez conduiront | conduit",
}


@pytest.mark.parametrize("infinitive", FRENCH)
def test_french_verbs(infinitive: str) -> None:
    *tenses, participle = (cell.split() for cell in FRENCH[infinitive].split("|"))
    verb = conjugate(infinitive)
    for name, forms in zip(("présent", "imparfait", "futur"), tenses, strict=True):
        assert list(verb.forms(name)) == forms
    assert [verb.participle] == participle


def test_what_is_no_verb_is_refused() -> None:
    with pytest.raises(ValueError, match="'maison' is no French infinitive"):
        conjugate("maison")


def test_participles_agree() -> None:
    assert [agree("allé", g, p) for g in "mf" for p in (False, True)] == ["allé", "allés", "allée", "allées"]
    assert [agree("pris", g, p) for g in "mf" for p in (False, True)] == ["pris", "pris", "prise", "prises"]


def test_nouns_and_adjectives() -> None:
    for singular, plural in {"chat": "chats", "oiseau": "oiseaux", "cheval": "chevaux", "repas": "repas"}.items():
        assert french_plural(singular) == plural
    for singular, plural in {
        "cat": "cats",
        "bus": "buses",
        "cherry": "cherries",
        "boy": "boys",
        "watch": "watches",
    }.items():
        assert english_plural(singular) == plural
    pairs = "petit/petite rouge/rouge heureux/heureuse cher/chère italien/italienne bon/bonne fatigué/fatiguée"
    for pair in pairs.split():
        masculine, wanted = pair.split("/")
        assert feminine(masculine) == wanted


def test_english_verbs() -> None:
    known = {
        "eat ate eaten": ("eats", "ate", "eaten", "eating"),
        "watch": ("watches", "watched", "watched", "watching"),
        "study": ("studies", "studied", "studied", "studying"),
        "play": ("plays", "played", "played", "playing"),
        "dance": ("dances", "danced", "danced", "dancing"),
        "run ran run": ("runs", "ran", "run", "running"),
        "travel": ("travels", "travelled", "travelled", "travelling"),
        "prefer": ("prefers", "preferred", "preferred", "preferring"),
        "go went gone": ("goes", "went", "gone", "going"),
        "see saw seen": ("sees", "saw", "seen", "seeing"),
        "be was been": ("is", "was", "been", "being"),
        "have had had": ("has", "had", "had", "having"),
    }
    for entry, forms in known.items():
        verb = english_verb(entry)
        assert (verb.third, verb.past, verb.participle, verb.gerund) == forms


@pytest.mark.parametrize(
    ("form", "person", "supported", "words"),
    [
        ("present", 2, False, "looks for"),
        ("present", 5, False, "look for"),
        ("present", 2, True, "does look for"),
        ("present", 0, True, "do look for"),
        ("progressive", 0, False, "am looking for"),
        ("past", 2, False, "looked for"),
        ("past", 2, True, "did look for"),
        ("past progressive", 5, False, "were looking for"),
        ("used to", 2, False, "used to look for"),
        ("future", 3, True, "will look for"),
        ("perfect", 2, False, "has looked for"),
        ("perfect", 1, False, "have looked for"),
    ],
)
def test_english_verb_groups(form: str, person: int, supported: bool, words: str) -> None:
    helpers, main = verb_group(english_verb("look + for"), form, person, supported)
    assert " ".join(helpers + main) == words


def test_to_be_needs_no_do_and_modals_have_their_own_forms() -> None:
    be, can, must = english_verb("be was been"), english_verb("can"), english_verb("must")
    assert verb_group(be, "present", 2, True) == (("is",), ())
    assert verb_group(be, "past", 5, True) == (("were",), ())
    assert verb_group(can, "future", 2, False) == (("will",), ("be", "able", "to"))
    assert verb_group(must, "past", 2, False) == ((), ("had", "to"))
    with pytest.raises(ValueError, match="unknown form 'plural'"):
        verb_group(be, "plural", 0, False)


def french(text: str) -> str:
    return join(elide([(word, ()) for word in text.split()]))


def test_elision() -> None:
    assert french("le arbre que il aime") == "L'arbre qu'il aime"
    assert french("je ne ai pas de eau") == "Je n'ai pas d'eau"
    assert french("si il vient , si elle vient") == "S'il vient, si elle vient"
    assert french("le hibou et le homme") == "Le hibou et l'homme"  # an h that is heard, one that is not
    assert french("il ne y a pas") == "Il n'y a pas"


def test_contraction() -> None:
    def before(preposition: str, words: str) -> str:
        return join(elide(prepose((preposition, (1,)), [(word, (2,)) for word in words.split()]))).lower()

    assert before("de", "le jardin") == "du jardin"
    assert before("à", "les enfants") == "aux enfants"
    assert before("de", "les enfants") == "des enfants"
    assert before("à", "le jardin") == "au jardin"
    assert before("de", "le hôtel") == "de l'hôtel"
    assert before("à", "la gare") == "à la gare"
    assert prepose(("de", (1,)), [("le", (2,)), ("lac", (3,))])[0] == ("du", (1, 2))  # the links of both


def test_a_or_an() -> None:
    words = ["a", "apple", "and", "a", "pear", ",", "a", "old", "hour", ",", "a", "European", "a", "hour"]
    assert join(choose_articles([(w, ()) for w in words])) == "An apple and a pear, an old hour, a European an hour"


def test_words() -> None:
    assert split_words("Jane visite l'Afrique en septembre.") == [
        "Jane",
        "visite",
        "l'",
        "Afrique",
        "en",
        "septembre",
        ".",
    ]
    assert split_words("Qu'est-ce que c’est, Paul?") == ["Qu'", "est-ce", "que", "c’", "est", ",", "Paul", "?"]
    assert split_words("Marie's hat") == ["Marie'", "s", "hat"]
    assert split_words("") == []
