"""LibreTranslate as a peer: without its sentence splitter, whose models cannot be had offline, and without the network.

    python libretranslate_server.py PORT     in an environment that has libretranslate, with ARGOS_PACKAGES_DIR

A class that returns the whole text takes the place of the splitter, which saves LibreTranslate its time.
"""

from __future__ import annotations

import sys

import argostranslate.sbd
import libretranslate.init
from libretranslate.main import main


class WholeText:
    """A sentence splitter that splits nothing."""

    def __init__(self, *arguments: object, **options: object) -> None:
        pass

    def sentences(self, text: str) -> list[str]:
        return [text]


argostranslate.sbd.SBDetect = WholeText
argostranslate.sbd.minisbd_models.list_models = lambda: ["fr", "en"]
libretranslate.init.boot = lambda *arguments, **options: None  # it would ask the network for models
sys.argv = ["libretranslate", "--host", "127.0.0.1", "--port", sys.argv[1], "--threads", "32", "--disable-web-ui"]
main()
