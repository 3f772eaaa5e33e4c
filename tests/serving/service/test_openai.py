"""OpenAI's API, with its real client: completions, scores, chat, embeddings and models."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import openai
import pytest
import torch

import regard
from regard.api.embedder import Embedder
from regard.api.model_names import SHIPPED
from regard.api.writer import Writer
from regard.decoding.searches.greedy import Greedy
from regard.decoding.searches.sample import Sample
from regard.text.chat import ChatFormat
from tests.serving.service.conftest import KEY, Running, make_service

PROMPT = "ROMEO:\nBut, soft! what light"
CHAT = ChatFormat(
    open={"system": "", "user": "KING:\n", "assistant": "QUEEN:\n"},
    close={"system": "\n", "user": "\n\n", "assistant": "\n\n"},
    answer="QUEEN:\n",
)


@pytest.fixture(scope="session")
def writer() -> Writer:
    writer = regard.load("shakespeare", device="cpu")
    assert isinstance(writer, Writer)
    return writer


@pytest.fixture(scope="session")
def texts(start: Callable[..., Running], writer: Writer, tmp_path_factory: pytest.TempPathFactory) -> Running:
    """A server that writes, chats, embeds and translates."""
    chatting = Writer(writer.model, writer.tokenizer, info={**writer.info, "chat": CHAT.to_dict()})
    folder = chatting.save(tmp_path_factory.mktemp("chat") / "model")
    folders = {name: SHIPPED / name for name in ("shakespeare", "demo-encoder", "fr-en")}
    return start(make_service({**folders, "chatty": folder}, device="cpu"))


@pytest.fixture(scope="session")
def client(texts: Running) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{texts.url}/v1", api_key="not-needed", max_retries=0)


def complete(client: openai.OpenAI, prompt: Any = PROMPT, **options: Any) -> Any:
    return client.completions.create(
        model="shakespeare", prompt=prompt, **{"temperature": 0, "max_tokens": 20, **options}
    )


def test_the_list_of_models(client: openai.OpenAI, texts: Running) -> None:
    assert [model.id for model in client.models.list()] == ["shakespeare", "demo-encoder", "fr-en", "chatty"]
    assert client.models.retrieve("shakespeare").owned_by == "regard"
    with pytest.raises(openai.NotFoundError, match="the model 'none' does not exist"):
        client.models.retrieve("none")


def test_a_completion_is_what_the_writer_writes(client: openai.OpenAI, writer: Writer) -> None:
    found = complete(client)
    assert found.choices[0].text == writer.write(PROMPT, search=Greedy(), max_tokens=20)
    assert found.choices[0].finish_reason == "length" and found.object == "text_completion"
    assert found.usage.prompt_tokens == len(writer.begin(PROMPT)) and found.usage.completion_tokens == 20
    sampled = complete(client, temperature=0.8, top_p=0.9, seed=7, n=2)
    assert [choice.text for choice in sampled.choices] == [
        writer.write(PROMPT, search=Sample(0.8, top_p=0.9, seed=seed), max_tokens=20) for seed in (7, 8)
    ]
    assert complete(client, temperature=1).choices[0].text != complete(client, temperature=1).choices[0].text


def test_texts_of_many_clients_are_the_same_as_alone(client: openai.OpenAI, writer: Writer) -> None:
    """They enter and leave one batch at different times, with different searches."""
    jobs = [
        (f"{name}:\n", {"max_tokens": 5 + 7 * i, "seed": i, "temperature": i % 2}) for i, name in enumerate("ABCDEFGH")
    ]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda job: complete(client, job[0], **job[1]).choices[0].text, jobs))
    searches = [Sample(seed=i) if i % 2 else Greedy() for i in range(8)]
    assert found == [
        writer.write(prompt, search=search, max_tokens=options["max_tokens"])
        for (prompt, options), search in zip(jobs, searches, strict=True)
    ]


def test_a_stream_adds_up_to_the_text(client: openai.OpenAI) -> None:
    expected = complete(client).choices[0].text
    chunks = list(complete(client, stream=True, n=2, stream_options={"include_usage": True}))
    for i in range(2):
        own = [choice for chunk in chunks for choice in chunk.choices if choice.index == i]
        assert "".join(choice.text for choice in own) == expected and len(own) > 10
        assert [choice.finish_reason for choice in own if choice.finish_reason] == ["length"]
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens == 40


def test_prompts_in_all_forms(client: openai.OpenAI, writer: Writer) -> None:
    other = "JULIET:\n"
    expected = [complete(client, prompt).choices[0].text for prompt in (PROMPT, other)]
    ids = [writer.begin(PROMPT), writer.begin(other)]
    assert complete(client, ids[0]).choices[0].text == expected[0]
    for prompts in ([PROMPT, other], ids):
        assert [choice.text for choice in complete(client, prompts).choices] == expected
    several = complete(client, [PROMPT, other], n=2)
    assert [(choice.index, choice.text) for choice in several.choices] == list(
        enumerate([expected[0]] * 2 + [expected[1]] * 2)
    )


def test_stop_texts(client: openai.OpenAI, writer: Writer) -> None:
    whole = complete(client, max_tokens=60).choices[0].text
    stop = whole[10:13]
    found = complete(client, max_tokens=60, stop=[stop, "never"]).choices[0]
    assert (found.text, found.finish_reason) == (whole[: whole.index(stop)], "stop")
    streamed = complete(client, max_tokens=60, stop=stop, stream=True)
    assert "".join(chunk.choices[0].text for chunk in streamed) == whole[: whole.index(stop)]


def test_scores_of_a_prompt_are_those_of_the_writer(client: openai.OpenAI, writer: Writer) -> None:
    found = complete(client, max_tokens=0, echo=True, logprobs=2).choices[0]
    expected = writer.score(PROMPT)
    assert found.text == PROMPT
    assert found.logprobs.tokens[-len(expected.tokens) :] == expected.tokens
    assert found.logprobs.token_logprobs[0] is None
    assert found.logprobs.token_logprobs[1:] == pytest.approx(
        expected.logps[-len(found.logprobs.tokens) + 1 :], abs=1e-4
    )
    assert found.logprobs.text_offset == [0, *range(len(PROMPT))]  # the start token, then characters
    best = found.logprobs.top_logprobs[5]
    assert len(best) == 2 and max(best.values()) >= found.logprobs.token_logprobs[5]


def test_scores_of_a_completion(client: openai.OpenAI, writer: Writer) -> None:
    found = complete(client, logprobs=3, echo=True, max_tokens=6)
    (choice,) = found.choices
    scored = complete(client, choice.text, max_tokens=0, echo=True, logprobs=1).choices[0].logprobs
    assert choice.logprobs.token_logprobs[1:] == pytest.approx(scored.token_logprobs[1:], abs=1e-3)
    for token, logp, top in list(
        zip(choice.logprobs.tokens, choice.logprobs.token_logprobs, choice.logprobs.top_logprobs, strict=True)
    )[-6:]:
        assert max(top, key=lambda name: top[name]) == token and top[token] == pytest.approx(logp, abs=1e-5)  # greedy


def test_the_best_of_several(client: openai.OpenAI) -> None:
    options = {"temperature": 1, "seed": 3, "logprobs": 0, "max_tokens": 8}
    each = complete(client, n=4, **options).choices
    mean = [sum(choice.logprobs.token_logprobs) / len(choice.logprobs.token_logprobs) for choice in each]
    best = complete(client, n=2, best_of=4, **options).choices
    order = sorted(range(4), key=lambda i: -mean[i])
    assert [choice.text for choice in best] == [each[i].text for i in order[:2]]


def test_penalties_and_biases(client: openai.OpenAI, writer: Writer) -> None:
    letter = writer.tokenizer.encode("z")[-1]
    assert complete(client, logit_bias={str(letter): 100}).choices[0].text == "z" * 20
    plain = complete(client, logit_bias={str(letter): 100}, frequency_penalty=2, max_tokens=60).choices[0].text
    assert plain.startswith("z" * 40) and plain != "z" * 60  # 100 are gone after about 45 copies
    repeated = complete(client, presence_penalty=2, max_tokens=60).choices[0].text
    assert len(set(repeated)) > len(set(complete(client, max_tokens=60).choices[0].text))


def test_a_chat(client: openai.OpenAI, writer: Writer) -> None:
    messages: Any = [{"role": "user", "content": [{"type": "text", "text": "Who is there?"}]}]
    options: Any = {"model": "chatty", "messages": messages, "temperature": 0, "max_completion_tokens": 15}
    found = client.chat.completions.create(**options, logprobs=True, top_logprobs=2)
    expected = writer.write("KING:\nWho is there?\n\nQUEEN:\n", search=Greedy(), max_tokens=15)
    (choice,) = found.choices
    assert (choice.message.role, choice.message.content) == ("assistant", expected)
    assert choice.finish_reason == "length" and found.usage is not None and found.usage.completion_tokens == 15
    assert choice.logprobs is not None and choice.logprobs.content is not None
    for token in choice.logprobs.content:
        assert token.top_logprobs[0].token == token.token and token.logprob <= 0
    chunks = list(client.chat.completions.create(**options, stream=True, stream_options={"include_usage": True}))
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1]) == expected
    assert chunks[-2].choices[0].finish_reason == "length" and chunks[-1].usage is not None


def test_embeddings_as_numbers_and_as_base64(client: openai.OpenAI, texts: Running) -> None:
    embedder = regard.load("demo-encoder", device="cpu")
    assert isinstance(embedder, Embedder)
    sentences = ["le chat dort", "the cat sleeps"]
    expected = embedder.embed(sentences)
    found = client.embeddings.create(model="demo-encoder", input=sentences)  # the client asks for base64
    torch.testing.assert_close(torch.tensor([entry.embedding for entry in found.data]), expected, atol=1e-5, rtol=0)
    assert found.usage.prompt_tokens == sum(len(embedder.token_ids(text)) for text in sentences)
    plain = texts.post("/v1/embeddings", {"model": "demo-encoder", "input": sentences[0]}).json["data"][0]["embedding"]
    assert plain == pytest.approx(expected[0].tolist(), abs=1e-5)
    raw = texts.post("/v1/embeddings", {"model": "demo-encoder", "input": sentences[0], "encoding_format": "base64"})
    decoded = np.frombuffer(base64.b64decode(raw.json["data"][0]["embedding"]), "<f4")
    assert decoded.tolist() == pytest.approx(plain, abs=1e-7)
    assert math.hypot(*plain) == pytest.approx(1, abs=1e-5)


WRITE: dict[str, Any] = {"model": "shakespeare", "prompt": "a"}
TALK: dict[str, Any] = {"model": "chatty", "messages": [{"role": "user", "content": "a"}]}


@pytest.mark.parametrize(
    ("path", "fields", "status", "message"),
    [
        (
            "completions",
            {"model": "none"},
            404,
            "the model 'none' does not exist (known: shakespeare, demo-encoder, chatty)",
        ),
        ("completions", {"model": "fr-en"}, 400, "fr-en does not write text, because it is a translator"),
        ("completions", {"model": None}, 400, "model: input should be a valid string"),
        ("completions", {"suffix": "x"}, 400, "suffix: "),
        ("completions", {"temperature": 3}, 400, "temperature: "),
        ("completions", {"stop": ["a"] * 5}, 400, "stop has at most 4 texts"),
        ("completions", {"stop": ""}, 400, "stop has at most 4 texts, none of which is empty"),
        ("completions", {"n": 9}, 400, "at most 8 each"),
        ("completions", {"n": 2, "best_of": 1}, 400, "best_of is 1, less than n = 2"),
        ("completions", {"best_of": 2, "stream": True}, 400, "cannot be streamed"),
        ("completions", {"max_tokens": 0}, 400, "max_tokens is 0, which needs echo"),
        ("completions", {"max_tokens": 100_000}, 400, "of the prompt leave room for"),
        ("completions", {"prompt": []}, 400, "prompt is empty"),
        ("completions", {"prompt": [10**9]}, 400, "prompt must contain tokens from 0 to"),
        ("completions", {"prompt": "a" * 5_000}, 400, "leave room for 0"),
        ("completions", {"prompt": ["a"] * 65}, 400, "the request has 65 texts; the limit is 64"),
        ("chat/completions", {"model": "shakespeare"}, 400, "shakespeare has no chat format"),
        ("chat/completions", {"tools": [{"type": "function"}]}, 400, "tools: "),
        ("chat/completions", {"response_format": {"type": "json_object"}}, 400, "response_format.type: "),
        ("chat/completions", {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400, "messages."),
        ("chat/completions", {"messages": [{"role": "assistant", "content": "a"}]}, 400, "message"),
        ("embeddings", {"model": "shakespeare", "input": "a"}, 400, "shakespeare does not embed sentences"),
        ("embeddings", {"model": "demo-encoder", "input": []}, 400, "input is empty"),
        ("embeddings", {"model": "demo-encoder", "input": "a", "dimensions": 3}, 400, "cannot be cut to 3"),
    ],
)
def test_what_is_wrong_is_said(texts: Running, path: str, fields: dict[str, Any], status: int, message: str) -> None:
    base = {"completions": WRITE, "chat/completions": TALK, "embeddings": {}}[path]
    answer = texts.post(f"/v1/{path}", {**base, **fields})
    assert answer.status == status, answer.content
    error = answer.json["error"]
    assert message in error["message"] and set(error) == {"message", "type", "param", "code"}


def test_a_key_is_asked_for_as_openai_does(locked: Running) -> None:
    with pytest.raises(openai.AuthenticationError, match="requires an API key"):
        openai.OpenAI(base_url=f"{locked.url}/v1", api_key="wrong", max_retries=0).models.list()
    assert len(list(openai.OpenAI(base_url=f"{locked.url}/v1", api_key=KEY).models.list())) == 2


def test_a_reader_that_goes_away_stops_the_text(texts: Running, client: openai.OpenAI) -> None:
    model = texts.service.models.get("shakespeare")
    assert model is not None
    stream = complete(client, "x", max_tokens=200, stream=True)
    next(iter(stream))
    stream.close()
    while len(model.batcher):  # the test's timeout ends it if the text goes on for ever
        pass
    written = b"".join(
        line for line in texts.get("/metrics").content.splitlines(True) if b"regard_cancelled_total" in line
    )
    assert written
