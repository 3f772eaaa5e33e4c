"""Guess the language of a sentence by its most frequent words: articles, pronouns, prepositions, auxiliary verbs.

About every second word of a sentence is one of a few dozen that say little about its topic and much about its
language. Related languages share some of them ("la" is French, Spanish and Italian), so a guess needs several words
more than the expected language has.
"""

from __future__ import annotations

import re
from functools import lru_cache

from regard.text.augment.proper_names import REMEMBERED_WORDS
from regard.text.placeholders.spans import SOME_SPAN

LANGUAGES = {
    "en": "English",
    "fr": "French",
    "de": "German",
    "es": "Spanish",
    "it": "Italian",
    "pt": "Portuguese",
    "nl": "Dutch",
}
MIN_LEAD = 2  # frequent words that another language must have more than the expected one

_FREQUENT = {
    "en": """
        the a an and or but if of to in on at by for from with without about into over under after before
        i you he she it we they me him her us them my your his its our their this that these those
        is are am was were be been being have has had do does did will would can could should must may might
        not no yes
        what where when who whom which why how whether there here very too also just only never always
        please thank thanks than then because as so all some any every more most other
        go going get getting know like want see come make say said asked time day
    """,
    "fr": """
        le la les l un une des du de d au aux et ou mais si donc ni car que qu qui quoi dont où quand comment pourquoi
        je j tu il elle on nous vous ils elles me m te t se s lui leur leurs moi toi y en ce c cet cette ces ça cela
        mon ma mes ton ta tes son sa ses notre nos votre vos
        suis es est sommes êtes sont était étaient étais sera serait être été ai as a avons avez ont avait avais aura
        aurait avoir eu fait fais faire faut peut peux pouvez veux veut voulez voudrais vais va allez vont dois doit
        ne n pas plus jamais rien aussi très trop bien tout tous toute toutes à dans sur sous avec sans pour par chez
        vers entre depuis pendant avant après comme quel quelle quels quelles même encore déjà non oui merci
    """,
    "de": """
        der die das den dem des ein eine einen einem einer eines und oder aber wenn dass ob weil als wie
        ich du er sie es wir ihr mich dich sich uns euch mir dir ihm ihn ihnen mein meine meinen dein deine sein seine
        ihre unser unsere dieser diese dieses ist sind bin bist war waren gewesen habe hast hat haben hatte hatten
        wird werden wurde kann können konnte muss müssen soll will wollen möchte möchten darf
        nicht kein keine keinen ja nein doch noch schon nur auch sehr so zu zum zur in im an am auf aus bei mit nach
        von vom vor für über unter um durch ohne seit wer was wo wann warum wohin welche bitte danke heute gestern
        morgen hier dort dann jetzt immer nie mehr viel alles nichts etwas gut
    """,
    "es": """
        el la los las un una unos unas y o pero si que de del al a en con sin por para sobre entre hasta desde
        yo tú él ella nosotros ellos ellas usted ustedes me te se nos le les lo mi mis tu tus su sus este esta esto
        estos ese esa eso aquel es son soy eres era eran ser sido fue fueron está están estoy estaba estar hay he ha
        has han había haber tengo tiene tienen tener hace hacer puedo puede quiero quiere quieres voy va vamos
        no ni sí nunca nada también muy más mucho mucha muchos todo toda todos todas qué quién dónde cuándo cómo
        cuál cuánto porque cuando donde como ya hoy ayer mañana aquí gracias favor bien
    """,
    "it": """
        il lo la i gli le l un uno una e ed o ma se che di del dello della dei delle d al allo alla ai alle a da dal
        dalla in nel nella con su sul sulla per tra fra io tu lui lei noi voi loro mi ti si ci vi mio mia tuo tua suo
        sua nostro vostro questo questa questi quello quella è sono sei era erano essere stato stata ho hai ha abbiamo
        avete hanno aveva avere fare fa posso può voglio vorrei vuole devo deve vado va andiamo
        non no sì mai niente anche molto molta più tutto tutta tutti chi cosa dove quando come perché quale quanto
        già oggi ieri domani qui grazie favore bene adesso
    """,
    "pt": """
        o a os as um uma uns umas e ou mas se que de do da dos das ao à em no na nos nas com sem por pelo pela para
        sobre entre até desde eu tu ele ela nós eles elas você vocês me te lhe meu minha teu tua seu sua nosso nossa
        este esta isto esse essa isso aquele é são sou era eram ser foi foram está estão estou estava estar há tenho
        tem têm ter tinha faz fazer posso pode quero quer vou vai vamos não nem sim nunca nada também muito muita
        mais todo toda todos todas quem onde quando como qual quanto porque já hoje ontem amanhã aqui obrigado bem
    """,
    "nl": """
        de het een en of maar als dat die dit deze ik jij je hij zij ze wij we jullie u mij me hem haar ons hun mijn
        jouw zijn is ben bent was waren geweest heb hebt heeft hebben had word wordt worden kan kunnen kon moet moeten
        wil willen zal zullen mag niet geen ja nee ook nog al heel zeer te in op aan uit bij met naar van voor over
        onder om door zonder sinds wie wat waar wanneer waarom hoe welke graag dank vandaag gisteren morgen hier daar
        dan nu altijd nooit meer veel alles niets iets goed
    """,
}
LANGUAGES_OF_WORD: dict[str, list[str]] = {}
for _code, _words in _FREQUENT.items():
    for _word in _words.split():
        LANGUAGES_OF_WORD.setdefault(_word, []).append(_code)
LETTERS = {"de": "äöüß", "es": "ñ¿¡", "pt": "ãõ", "fr": "œêûëîç", "it": "ìò"}  # hardly used by the others
_CONTRACTION = re.compile(r"[^\W\d_]'(t|s|m|re|ll|ve|d)\b")  # of English: don't, it's, I'm, we're
_WORD = re.compile(r"[^\W\d_]+")


def other_language(text: str, expected: str | None) -> str | None:
    """Return the language (its code) that a sentence looks like, or None if it may be in the expected one.

    If the expected language is not known here, there is nothing to compare with, and the answer is None.
    """
    if expected not in LANGUAGES:
        return None
    counts = _count_words(text)
    best = max(counts, key=counts.__getitem__)
    return best if counts[best] - counts[expected] >= MIN_LEAD else None


def is_clearly(text: str, language: str | None) -> bool:
    """Whether a sentence has several more frequent words of this language than of any other."""
    counts = _count_words(text)
    return language in counts and all(
        counts[language] - count >= MIN_LEAD for code, count in counts.items() if code != language
    )


def _count_words(text: str) -> dict[str, int]:
    """Count the frequent words and special letters of each language in a text."""
    counts = dict.fromkeys(LANGUAGES, 0)
    special: set[str] = set()
    for part in text.split():
        hits, letters = _hits(part)
        for code in hits:
            counts[code] += 1
        special.update(letters)
    for code in special:
        counts[code] += 1
    return counts


@lru_cache(REMEMBERED_WORDS)
def _hits(part: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the languages of the frequent words in a part of a text without spaces, and of its special letters."""
    part = SOME_SPAN.sub(" ", part).lower().replace("’", "'")  # without numbers, addresses and code
    part, contractions = _CONTRACTION.subn(" ", part)
    codes = [code for word in _WORD.findall(part) for code in LANGUAGES_OF_WORD.get(word, ())]
    letters = [code for code, letters in LETTERS.items() if any(letter in part for letter in letters)]
    return (*codes, *["en"] * contractions), tuple(letters)
