"""A captioner: it describes an image or a video in words, and shows where it looked for each word.

G4; Xu et al. 2015.

    N images or videos   T frames   C channels   H height   W width   m tokens   R rows and K columns of cells
    n = T R K
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.api.arrays.image_classifier import array_image
from regard.api.html import describe_model, model_html, model_repr
from regard.api.saving import learned_from_demo, save_face
from regard.arrays.captions import CaptionedImages, evenly, read_frames
from regard.arrays.images import to_pixels
from regard.attention.recording.recorder import record
from regard.decoding.model_step import evaluating
from regard.demo.scenes import demo_items, make_scenes
from regard.evaluation.captions import exact_share, pointing_share
from regard.look.trace.inputs.captions import trace_caption
from regard.look.trace.inputs.input_trace import InputTrace
from regard.models.config import FrameConfig
from regard.models.folder.weights_file import Storage
from regard.models.layer_names import is_cross_attention
from regard.models.protocols import config_of
from regard.text.tokenizers.special_tokens import END, PAD, START, UNKNOWN
from regard.text.tokenizers.tokenizer import Tokenizer

EXAMPLES = 12
EXAMPLE_SEED = 1_000_000  # of scenes that are in no training
BATCH_CELLS = 16_384  # of one forward pass
MAX_TOKENS = 64  # of a caption, if the model folder does not say how long captions are


@dataclass(frozen=True)
class Caption:
    """The caption of an image or a video."""

    name: str  # the file, or "image"
    text: str
    score: float  # log-probability of the caption
    tokens: list[str] = field(repr=False)
    words: list[tuple[str, int, int]] = field(repr=False)  # each with its first token, and the one after its last
    attention: Tensor | None = field(default=None, repr=False)  # (m, T, R, K): for each token, the weights of the cells

    def word_attention(self) -> Tensor:
        """Return the mean attention of each word's tokens, (words, T, R, K)."""
        if self.attention is None:
            raise ValueError("the attention was not recorded: call caption(…, attention=True)")
        if not self.words:
            return self.attention[:0]
        return torch.stack([self.attention[first:end].mean(0) for _, first, end in self.words])


class Captioner:
    """Describes images or videos; `regard.load` makes one from a folder.

    An image is the path of a file, an image of Pillow, or an array: (H, W), (H, W, C) or (C, H, W), bytes or numbers
    from 0 to 1. A video is the path of an animated GIF or of a folder with numbered frames, or a list of images: pass
    several videos as a list of lists. Frames are converted to the size and the number that the model was trained with.
    """

    def __init__(self, model: nn.Module, tokenizer: Tokenizer, *, info: Mapping[str, Any] | None = None) -> None:
        config = config_of(model)
        if not isinstance(config, FrameConfig):
            raise TypeError(f"model must be a captioner, got one of kind {config.kind!r}")
        self.model: Any = model
        self.tokenizer = tokenizer
        self.info = dict(info or {})
        self.size = config.channels, config.height, config.width
        self.grid = config.grid
        self.max_tokens = int(self.info.get("longest_caption") or MAX_TOKENS)

    @property
    def frames(self) -> int:
        """The frames that the model reads; 1: images."""
        return self.grid[0]

    def save(self, folder: str | Path, *, storage: Storage = "float32") -> Path:
        """Write a model folder that `regard.load` reads; `storage` as in regard.save_model."""
        return save_face(self.model, folder, tokenizer=self.tokenizer, info=self.info, storage=storage)

    def __repr__(self) -> str:
        return model_repr("Captioner", describe_model(self.model, self.info))

    def _repr_html_(self) -> str:
        """Display in a notebook."""
        return model_html("Captioner", describe_model(self.model, self.info), 'captioner.caption("picture.png").text')

    def caption(self, images: Any, *, attention: bool = False) -> Any:
        """Return the caption of an image or a video; for a list, a list of captions.

        With `attention`, a caption has the weights of each token over the cells of the frames. A list of images is one
        video if the model reads videos.
        """
        is_list = isinstance(images, list | tuple)
        if is_list and self.frames > 1 and not all(isinstance(entry, str | Path | list | tuple) for entry in images):
            is_list = False  # the frames of one video
        if not is_list:
            return self.caption_pixels(self.pixels(images)[None], [_name_of(images)], attention=attention)[0]
        if not images:
            return []
        pixels = np.stack([self.pixels(image) for image in images])
        return self.caption_pixels(pixels, [_name_of(image) for image in images], attention=attention)

    def caption_pixels(
        self, pixels: NDArray[np.uint8], names: Sequence[str], *, attention: bool = False
    ) -> list[Caption]:
        """Return the captions of frames of the model's size, (N, T, C, H, W)."""
        captions = []
        for rows in torch.arange(len(pixels)).split(max(1, BATCH_CELLS // (self.frames * self.grid[1] * self.grid[2]))):
            frames = torch.from_numpy(pixels[rows.numpy()]).to(next(self.model.parameters()).device)
            tokens, scores = self.write(frames)
            maps = self.attention_of(frames, tokens) if attention else [None] * len(rows)
            for row, ids, score, weights in zip(rows.tolist(), tokens, scores, maps, strict=True):
                words = [(word.text, word.start, word.end) for word in self.tokenizer.words(ids)]
                pieces, text = self.tokenizer.pieces(ids), self.tokenizer.decode(ids)
                captions.append(Caption(names[row], text, score, pieces, words, weights))
        return captions

    def write(self, frames: Tensor) -> tuple[list[list[int]], list[float]]:
        """Return the tokens that greedy search writes for frames (N, T, C, H, W), without END, and their scores."""
        model, count = self.model, len(frames)
        with torch.inference_mode(), evaluating(model):
            state = model.start(model.encode(frames), self.max_tokens + 1)
            token = torch.full((count, 1), START, device=frames.device)
            done = torch.zeros(count, dtype=torch.bool, device=frames.device)
            scores = torch.zeros(count, device=frames.device)
            written = []
            for _ in range(self.max_tokens + 1):
                logits = model.project(model.decode(token, state=state))[:, -1].float()  # (N, V)
                logps = logits.log_softmax(-1)
                logps[:, [PAD, START, UNKNOWN]] = -torch.inf  # never written
                logp, token = logps.max(-1, keepdim=True)  # (N, 1)
                token = torch.where(done[:, None], END, token)
                scores += torch.where(done, 0.0, logp[:, 0])
                written.append(token)
                done = done | (token[:, 0] == END)
                if bool(done.all()):
                    break
        rows = torch.cat(written, dim=1).tolist()
        return [row[: row.index(END)] if END in row else row for row in rows], scores.tolist()

    def attention_of(self, frames: Tensor, tokens: Sequence[Sequence[int]]) -> list[Tensor]:
        """Return the weights with which each token of a caption attends to the cells, (m, T, R, K) for each.

        The weights are those of the step that writes the token; with several layers and heads, their mean.
        """
        longest = max(map(len, tokens), default=0)
        inputs = torch.full((len(tokens), longest + 1), PAD)
        for row, ids in zip(inputs, tokens, strict=True):
            row[: len(ids) + 1] = torch.tensor([START, *ids])
        with torch.inference_mode(), evaluating(self.model), record(self.model) as maps:
            self.model.decode(inputs.to(frames.device), self.model.encode(frames))
            layers = [maps[name].float().mean(1) for name in maps if is_cross_attention(name)]  # (N, m, n)
        weights = torch.stack(layers).mean(0).cpu().unflatten(-1, self.grid)
        return [part[: len(ids)] for part, ids in zip(weights, tokens, strict=True)]

    def evaluate(self, images: CaptionedImages) -> dict[str, float]:
        """Return the share of captions that are exactly right and, where the places of words are known, of good peaks.

        A peak is good if the cell with the highest weight lies on an item that the word names; only the words of right
        captions are counted.
        """
        knows_places = images.places is not None
        captions = self.caption_pixels(images.pixels, images.names, attention=knows_places)
        scores = {"exact": exact_share([caption.text for caption in captions], images.captions)}
        if images.places is not None:
            maps = [caption.word_attention().numpy() for caption in captions]
            texts = [caption.text for caption in captions]
            scores["pointing"] = pointing_share(maps, texts, images, self.size[1] // self.grid[1])
        return {**scores, "images": len(images)}

    def trace(self, image: Any, *, source: str | None = None, name: str | None = None) -> InputTrace:
        """Return everything that the model does with an image or a video, for the explorer page.

        `source` is the name of the image, by default the file's; `name` is that of the model.
        """
        if source is None:
            source = Path(image).name if isinstance(image, str | Path) else "image"
        return trace_caption(self, self.pixels(image), source=source, name=name)

    def examples(self) -> dict[str, list[NDArray[np.uint8]]]:
        """Return images or videos to try by name: demo scenes, if the model was trained on them."""
        if not learned_from_demo(self.info):
            return {}
        scenes = make_scenes(demo_items(seed=EXAMPLE_SEED), EXAMPLES, frames=self.frames, seed=EXAMPLE_SEED)
        return {f"scene {i}": list(scenes.pixels[i]) for i in range(len(scenes))}

    def pixels(self, image: Any) -> NDArray[np.uint8]:
        """Return an image or a video as the model sees it, (T, C, H, W)."""
        if isinstance(image, str | Path):
            frames = read_frames(image, self.frames)
        else:
            parts = list(image) if isinstance(image, list | tuple) else [image]
            if not parts:
                raise ValueError("a video needs at least one frame")
            frames = evenly(
                [part if hasattr(part, "convert") else array_image(np.asarray(part)) for part in parts], self.frames
            )
        return np.stack([to_pixels(frame, self.size) for frame in frames])


def _name_of(image: Any) -> str:
    return str(image) if isinstance(image, str | Path) else "image"
