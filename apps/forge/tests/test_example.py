# SPDX-License-Identifier: Apache-2.0
"""The example, with the real client of OpenAI against the local model: its outputs, its faults, and a kill in the middle."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import closing
from pathlib import Path

import msgspec
import numpy as np
import openai
import pytest
from model2vec import StaticModel
from pyarrow import parquet
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from apps.forge.example.embedding import DIMENSIONS, embedder
from apps.forge.example.endpoint import Endpoint
from apps.forge.example.model import Model
from apps.forge.example.settings import Settings
from apps.forge.folder import RunFolder
from apps.forge.tests.conftest import Forge, read_lines
from redrive import ConfigurationError, Fail, classify, connect

SPEC = "apps.forge.example.flow:spec"
ROOT = Path(__file__).parents[3]
PATIENCE = 60.0


def texts(count: int) -> list[dict[str, str]]:
    return [{"id": f"s{number}", "text": f"Hello,  why is order {number} late?"} for number in range(count)]


def test_samples_are_normalised_labelled_embedded_and_measured(
    forge: Forge, samples: Callable[..., Path], endpoint: Endpoint
) -> None:
    """One percent is refused for good, five percent fail the first time, and one sample is filtered."""
    path = samples([*texts(300), {"text": " ... "}, {"text": "x" * 20_001}])

    code, said = forge("run", SPEC, "--input", path, "--out", "out")

    assert code == 0, said
    found = read_lines("out/samples.jsonl")
    ended = Counter((each["status"], each.get("code")) for each in found)
    assert ended["skipped", None] == 1
    assert ended["failed", "TEXT_TOO_LONG"] == 1
    refused = ended["failed", "CONTENT_REFUSED"]
    assert refused == endpoint.answers[400] > 0
    assert ended["complete", None] == 300 - refused == endpoint.answers[200]
    assert endpoint.answers[503] + endpoint.answers[500] + endpoint.answers[0] > 5
    assert set(endpoint.calls.values()) == {1}
    assert found[300]["reason"] == "it has hardly any letters"
    first = found[0]["output"]
    assert (first["id"], first["text"], first["label"]) == ("s0", "Hello, why is order 0 late?", "question")
    shown = msgspec.json.decode(forge("status", "out", "-o", "json")[1])
    assert shown["total"] == sum(
        shown[name] for name in ("succeeded", "dead", "skipped", "cancelled", "open")
    )
    assert (shown["total"], shown["skipped"], shown["results"]) == (302, 1, 302)
    measured = parquet.read_table("out/measurements.parquet").to_pylist()
    assert len(measured) == ended["complete", None]
    assert all(each["words"] == 6 and 0 < each["quality"] <= 1 for each in measured)
    stats = msgspec.json.decode(forge("stats", "out", "-o", "json")[1])
    assert [each["skipped"] for each in stats["stages"]] == [1, 0, 0]
    assert "SKIPPED" not in str(stats["errors"])


def test_vectors_are_artefacts_and_not_rows(
    forge: Forge, samples: Callable[..., Path], endpoint: Endpoint
) -> None:
    endpoint.refused = endpoint.flaky = 0
    forge("run", SPEC, "--input", samples(texts(100)), "--out", "out")

    outputs = [each["output"] for each in read_lines("out/samples.jsonl")]
    files = {
        path.parent.name + path.name: path for path in Path("out/artifacts").rglob("*") if path.is_file()
    }
    assert {each["vectors"] for each in outputs} == set(files)
    assert len(files) < 50
    for each in outputs[:10]:
        block = np.frombuffer(files[each["vectors"]].read_bytes(), np.float32).reshape(-1, DIMENSIONS)
        assert np.allclose(block[each["row"]], embedder("ngrams").embed([each["text"]])[0])


class Runs:
    """Real `forge` processes."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, *words: object) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "apps.forge", *map(str, words), "--lease", "1", "--concurrency", "8"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        with self._log.open("ab") as log:
            made = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        self.started.append(made)
        return made

    @property
    def log(self) -> str:
        return self._log.read_text(encoding="utf-8")


@pytest.fixture
def runs(tmp_path: Path) -> Generator[Runs]:
    made = Runs(tmp_path / "log.txt")
    yield made
    for each in made.started:
        each.kill()
        each.wait()


def test_after_kill_9_resume_loses_nothing_and_repeats_no_committed_stage(
    runs: Runs, samples: Callable[..., Path], endpoint: Endpoint, forge: Forge
) -> None:
    endpoint.refused, endpoint.flaky, endpoint.allowed = 10, 0, 100
    path = samples(texts(200))

    doomed = runs.start("run", SPEC, "--input", path, "--out", "out")
    for _ in range(8):
        assert endpoint.at_gate.acquire(timeout=PATIENCE), runs.log
    before = msgspec.json.decode(forge("status", "out", "-o", "json")[1])
    doomed.kill()
    doomed.wait()
    endpoint.gate.set()
    resumed = runs.start("resume", "out")

    assert resumed.wait(PATIENCE) == 0, runs.log
    assert before["status"] == "running"
    assert before["total"] == 200
    assert 0 < before["results"] < 200
    found = read_lines("out/samples.jsonl")
    assert [each["sample"] for each in found] == list(range(200))
    assert {each["status"] for each in found} == {"complete", "failed"}
    crashed = 0
    with connect(RunFolder(Path("out")).database) as rd:
        for each in found:
            attempts = rd.job(each["job"]).attempts()
            ended = Counter((one.stage, one.outcome) for one in attempts)
            assert ended["normalise", "ok"] == 1
            assert ended["label", "ok"] + ended["label", "dead"] == 1
            assert ended["embed", "ok"] == (each["status"] == "complete")
            # Whatever was committed was called once; what was at the gate, or not committed yet, once more.
            again = ended["label", "crashed"]
            crashed += again
            if each["status"] == "complete":
                assert endpoint.calls[each["output"]["text"]] <= 1 + again
    assert 0 < crashed <= 16


def test_the_clients_own_retries_are_off_and_its_errors_quote_no_text(endpoint: Endpoint) -> None:
    endpoint.flaky = 1_000
    settings = Settings.read()
    with closing(Model(settings)) as model, pytest.raises(openai.APIError) as failed:
        model.label("a private text")

    assert endpoint.answers.total() == 1
    assert "private" not in str(failed.value)
    assert "private" not in classify(failed.value).message


def test_a_rate_limit_is_answered_with_the_time_to_wait() -> None:
    with Endpoint(rate=0.1, burst=1, refused=0, flaky=0).running() as server:
        settings = Settings(llm_url=server.url, llm_key=server.key)
        with closing(Model(settings)) as model:
            assert model.label("thank you, great").label == "praise"
            with pytest.raises(openai.RateLimitError) as limited:
                model.label("thank you, great")

    failure = classify(limited.value)
    assert failure.code == "RATE_LIMITED"
    assert failure.retry_after == 10


def test_an_answer_that_is_no_label_fails_the_sample_for_good(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = {"choices": [{"message": {"content": '{"label": "", "confidence": 7}'}}]}
    monkeypatch.setattr("apps.forge.example.endpoint._completion", lambda _: wrong)
    with closing(Model(Settings.read())) as model, pytest.raises(Fail) as failed:
        model.label("How so?")

    assert failed.value.code == "ANSWER_INVALID"


def test_a_setting_that_does_not_exist_is_refused_without_its_value() -> None:
    with pytest.raises(ConfigurationError, match="Did you mean FORGE_LLM_KEY") as refused:
        Settings.read({"FORGE_LLM_KEYS": "sk-secret"})

    assert "sk-secret" not in str(refused.value)
    assert "sk-secret" not in repr(Settings.read({"OPENAI_API_KEY": "sk-secret"}))


def test_similar_texts_have_similar_vectors_of_length_one() -> None:
    one, near, far, empty = embedder("ngrams").embed(
        ["my lamp is broken", "the lamp was broken", "물론입니다", ""]
    )

    assert float(one @ one) == pytest.approx(1, abs=1e-5)
    assert float(one @ near) > 0.3 > abs(float(one @ far))
    assert one.shape == (DIMENSIONS,)
    assert float(empty @ empty) <= 1 + 1e-5
    assert embedder("ngrams").embed([]).shape == (0, DIMENSIONS)


def test_a_real_model_embeds_by_what_it_has_learnt(tmp_path: Path) -> None:
    words = ["[UNK]", "lamp", "bulb", "parcel"]
    tokenizer = Tokenizer(WordLevel({word: place for place, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    learnt = np.array([[0, 0, 1], [2, 1, 0], [3, 1, 0], [0, -2, 1]], np.float32)
    StaticModel(learnt, tokenizer).save_pretrained(tmp_path)

    one, near, far = embedder(str(tmp_path)).embed(["lamp", "bulb", "parcel"])

    assert float(one @ one) == pytest.approx(1, abs=1e-5)
    assert float(one @ near) > 0.9 > 0.1 > float(one @ far)
    assert one.dtype == np.float32


def test_a_model_that_cannot_be_loaded_and_a_missing_package_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigurationError, match="neither the folder of a model"):
        embedder(str(tmp_path / "gone"))
    monkeypatch.setitem(sys.modules, "model2vec", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'redrive\[embeddings\]'"):
        embedder("minishlab/potion-base-8M")
