"""The command line, with the workers of fake_worker.py."""

import sys
from pathlib import Path

from regard.__main__ import run
from regard.cli.use import translate_job

translate_job.WORKER_COMMAND = (sys.executable, str(Path(__file__).with_name("fake_worker.py")))
run()
