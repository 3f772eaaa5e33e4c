"""The codes of languages: "fr" (ISO 639-1), "fra" (ISO 639-3), or with a script or a country, as in "fra_Latn"."""

from __future__ import annotations

from collections.abc import Collection

from regard.errors import UsageError, unknown_name

# ISO 639-3 codes of languages with a code of two letters: where models use several, all of them.
THREE_LETTERS = {
    "af": "afr", "am": "amh", "ar": "ara arb", "as": "asm", "az": "aze azj", "ba": "bak", "be": "bel", "bg": "bul",
    "bn": "ben", "bo": "bod", "br": "bre", "bs": "bos", "ca": "cat", "cs": "ces", "cy": "cym", "da": "dan", "de": "deu",
    "dz": "dzo", "el": "ell", "en": "eng", "eo": "epo", "es": "spa", "et": "est ekk", "eu": "eus", "fa": "fas pes",
    "fi": "fin", "fj": "fij", "fo": "fao", "fr": "fra", "fy": "fry", "ga": "gle", "gd": "gla", "gl": "glg",
    "gn": "grn", "gu": "guj", "ha": "hau", "he": "heb", "hi": "hin", "hr": "hrv", "ht": "hat", "hu": "hun", "hy": "hye",
    "id": "ind", "ig": "ibo", "is": "isl", "it": "ita", "ja": "jpn", "jv": "jav", "ka": "kat", "kk": "kaz", "km": "khm",
    "kn": "kan", "ko": "kor", "ks": "kas", "ku": "kur kmr", "ky": "kir", "la": "lat", "lb": "ltz", "lg": "lug",
    "li": "lim", "ln": "lin", "lo": "lao", "lt": "lit", "lv": "lav lvs", "mg": "mlg plt", "mi": "mri", "mk": "mkd",
    "ml": "mal", "mn": "mon khk", "mr": "mar", "ms": "msa zsm", "mt": "mlt", "my": "mya", "nb": "nob", "ne": "nep npi",
    "nl": "nld", "nn": "nno", "no": "nor nob", "ny": "nya", "oc": "oci", "om": "orm gaz", "or": "ori ory", "pa": "pan",
    "pl": "pol", "ps": "pus pbt", "pt": "por", "ro": "ron", "ru": "rus", "rw": "kin", "sa": "san", "sd": "snd",
    "si": "sin", "sk": "slk", "sl": "slv", "sm": "smo", "sn": "sna", "so": "som", "sq": "sqi als", "sr": "srp",
    "ss": "ssw", "st": "sot", "su": "sun", "sv": "swe", "sw": "swa swh", "ta": "tam", "te": "tel", "tg": "tgk",
    "th": "tha", "ti": "tir", "tk": "tuk", "tl": "tgl", "tn": "tsn", "tr": "tur", "ts": "tso", "tt": "tat", "ug": "uig",
    "uk": "ukr", "ur": "urd", "uz": "uzb uzn", "vi": "vie", "wo": "wol", "xh": "xho", "yi": "yid ydd", "yo": "yor",
    "zh": "zho cmn", "zu": "zul",
}  # fmt: skip


def find_language(name: str, codes: Collection[str]) -> str:
    """Return the one of a model's codes that means this language: "fr" is "fra_Latn", "fr_XX" or "fra".

    A code itself comes first. UsageError if no code means the language, or several do.
    """
    if name in codes:
        return name
    for language in (name, *THREE_LETTERS.get(name, "").split()):
        meant = sorted(code for code in codes if code.partition("_")[0] == language)
        if len(meant) > 1:
            raise UsageError(f"the language {name!r} has several codes in this model: {', '.join(meant)}; give one")
        if meant:
            return meant[0]
    raise UsageError(unknown_name("language", name, tuple(codes)))
