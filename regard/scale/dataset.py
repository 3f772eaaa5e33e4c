"""A column of a dataset of Ray Data (https://docs.ray.io/en/latest/data), translated by actors on a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import ray.data

    from regard.api.results import Translation
    from regard.api.translator import Translator


def translate_dataset(
    ds: ray.data.Dataset,
    model: str,
    *,
    column: str = "text",
    output: str = "translation",
    workers: int = 1,
    threads: int = 1,
    batch: int = 256,
    **options: Any,
) -> ray.data.Dataset:
    """Return a dataset with one more column, `output`, the translation of `column`; Ray computes it when it is read.

    `workers` actors load the model, each with `threads` cores. `options` are those of `Translator.translate`, such as
    `beam=1`. A text that fails becomes an empty translation, with the reason in the column `output` + "_error". Ray
    keeps no order of the rows: if it matters, number them. The model must be on every machine, under the same name.
    """
    from ray.data import ActorPoolStrategy

    settings = {"model": model, "column": column, "output": output, "threads": threads, "options": options}
    return ds.map_batches(
        TranslateBatch,
        fn_constructor_kwargs=settings,
        batch_size=batch,
        batch_format="numpy",
        compute=ActorPoolStrategy(size=workers),
        num_cpus=threads,
    )


class TranslateBatch:
    """What an actor does: it loads the model once, and translates batches of rows."""

    def __init__(self, model: str, column: str, output: str, threads: int, options: Mapping[str, Any]) -> None:
        from regard.machine import set_threads
        from regard.tasks.loading import load

        set_threads(threads)
        self.translator: Any = load(model)
        self.column, self.output, self.options = column, output, options

    def __call__(self, rows: dict[str, Any]) -> dict[str, Any]:
        results = translate_each(self.translator, [str(text) for text in rows[self.column]], self.options)
        failed = [isinstance(result, str) for result in results]
        rows[self.output] = ["" if isinstance(result, str) else result.text for result in results]
        rows[f"{self.output}_error"] = [result if wrong else "" for result, wrong in zip(results, failed, strict=True)]
        return rows


def translate_each(
    translator: Translator, texts: list[str], options: Mapping[str, Any], numbers: list[int] | None = None
) -> list[Translation | str]:
    """Return a translation or an error message for each text; after a failure, repeat with half of the texts."""
    from regard.errors import RegardError
    from regard.machine import is_out_of_memory

    try:
        return [*translator.translate(texts, numbers=numbers, **options)]
    except RegardError as error:
        reason = str(error)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        reason = "out of memory: split the line"
    if len(texts) <= 1:
        return [reason] * len(texts)
    middle = len(texts) // 2
    return [
        result
        for part in (slice(middle), slice(middle, None))
        for result in translate_each(translator, texts[part], options, None if numbers is None else numbers[part])
    ]
