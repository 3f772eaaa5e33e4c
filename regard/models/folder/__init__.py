"""Read and write model folders. No other module does.

    manifest.json       format version, size and sha256 of each file
    config.json         kind and settings of the model, special tokens, versions, and further information
    model.safetensors   the weights: float32, bfloat16, or int8 with a scale per output row
    README.md           the model card

and the files of the tokenizers. A folder may come from an untrusted source, so names, sizes, checksums, settings and
shapes are checked before memory is allocated, and nothing is ever unpickled.
"""

from regard.models.folder.loading import FORMAT, NAMES, load_model, load_with_config, read_config, verify_folder
from regard.models.folder.saving import RESERVED, save_model

__all__ = [
    "FORMAT",
    "NAMES",
    "RESERVED",
    "load_model",
    "load_with_config",
    "read_config",
    "save_model",
    "verify_folder",
]
