"""The port's tokenizer and chat template: what a prompt becomes, and what templates may do."""

import json
import shutil
from pathlib import Path

import pytest
from port_files import NANO, copy, edit_json

from port.diffusion_gemma.tokens import Tokens, environment
from port.errors import CheckpointError, PortError


@pytest.fixture(scope="module")
def tokens() -> Tokens:
    return Tokens(NANO)


def with_template(tmp_path: Path, template: str) -> Tokens:
    directory = copy(tmp_path)
    (directory / "chat_template.jinja").write_text(template)
    return Tokens(directory)


def test_the_beginning_comes_first_once(tokens: Tokens) -> None:
    assert tokens.encode("") == [2]
    ids = tokens.encode("Paris")
    assert ids[0] == 2
    assert ids[1:] == tokens.encode("Paris", special=False)
    assert 2 not in ids[1:]


def test_markers_are_one_id_each(tokens: Tokens) -> None:
    listed = json.loads((NANO / "tokenizer.json").read_text())["added_tokens"]
    added = {token["content"]: token["id"] for token in listed}
    for marker, number in added.items():
        assert tokens.encode(marker, special=False) == [number], marker
    markers = ["<bos>", "<|turn>", "<turn|>", "<|image|>"]
    assert tokens.encode("".join(markers), special=False) == [added[marker] for marker in markers]


def test_special_tokens_are_found_by_the_name_of_their_setting(tokens: Tokens) -> None:
    assert (tokens.marker("bos_token"), tokens.marker("eos_token")) == (2, 1)
    assert tokens.marker("sep_token") is None


@pytest.mark.parametrize("text", ["The capital of France", " two  spaces,\ttab\n", "naïve café 東京 🙂", "x" * 500])
def test_text_comes_back(tokens: Tokens, text: str) -> None:
    assert tokens.decode(tokens.encode(text, special=False)) == text


def test_special_tokens_can_be_left_out(tokens: Tokens) -> None:
    ids = tokens.encode("hi<turn|>")
    assert tokens.decode(ids) == "<bos>hi<turn|>"
    assert tokens.decode(ids, skip_special=True) == "hi"


def test_a_file_that_remembers_cutting_and_filling_does_neither(tmp_path: Path) -> None:
    directory = copy(tmp_path)
    cut = {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0}
    fill = {"strategy": {"Fixed": 40}, "direction": "Left", "pad_to_multiple_of": None, "pad_id": 0, "pad_type_id": 0,
            "pad_token": "<pad>"}  # fmt: skip
    edit_json(directory / "tokenizer.json", lambda document: document.update(truncation=cut, padding=fill))
    text = "a prompt of several words"
    assert Tokens(directory).encode(text) == Tokens(NANO).encode(text)


def test_a_conversation_as_gemma_writes_it(tokens: Tokens) -> None:
    messages = [
        {"role": "system", "content": " Be brief. "},
        {"role": "user", "content": "Sky?"},
        {"role": "assistant", "content": "Blue."},
        {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "And this?"}]},
    ]
    turns = (
        "<bos><|turn>system\nBe brief.<turn|>\n<|turn>user\nSky?<turn|>\n<|turn>model\nBlue.<turn|>\n"
        "<|turn>user\n<|image|>And this?<turn|>\n"
    )
    assert tokens.chat(messages) == turns + "<|turn>model\n<|channel>thought\n<channel|>"
    assert tokens.chat(messages, prompt=False) == turns
    thinking = tokens.chat(messages, enable_thinking=True)
    assert thinking == turns.replace("Be brief", "<|think|>\nBe brief") + "<|turn>model\n"


def test_a_conversation_that_the_template_refuses(tokens: Tokens) -> None:
    with pytest.raises(PortError, match=r"refuses it.*role tool"):
        tokens.chat([{"role": "tool", "content": "42"}])


def test_blocks_leave_no_lines_behind(tmp_path: Path) -> None:
    template = "{% for m in messages %}\n  {% if m.role == 'user' %}\n{{ m.content }}\n  {% endif %}\n{% endfor %}\nend"
    assert with_template(tmp_path, template).chat([{"role": "user", "content": "a"}, {"role": "x"}]) == "a\nend"


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{ messages | tojson }}", '[{"role": "user", "content": "<é> & \'\\""}]'),
        ("{{ {'b': 1, 'a': 2} | tojson(sort_keys=true, indent=1) }}", '{\n "a": 2,\n "b": 1\n}'),
        ("{% for i in [1, 2, 3] %}{% if i == 2 %}{% continue %}{% endif %}{{ i }}{% endfor %}", "13"),
        ("{% for i in [1, 2, 3] %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", "1"),
        ("{% generation %}{{ messages[0].role }}{% endgeneration %}!", "user!"),
        ("{{ bos_token }}{{ eos_token }}{{ pad_token }}", "<bos><eos><pad>"),
        ("{{ tools is none }}{{ documents is none }}{{ unknown is defined }}", "TrueTrueFalse"),
        ("{{ strftime_now('%Y') | length }}", "4"),
        ("{{ add_generation_prompt }}", "True"),
    ],
)
def test_templates_have_what_they_are_written_for(tmp_path: Path, template: str, expected: str) -> None:
    assert with_template(tmp_path, template).chat([{"role": "user", "content": "<é> & '\""}]) == expected


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{{ raise_exception.__globals__.os }}",
        "{{ strftime_now.__init__.__globals__ }}",
    ],
)
def test_templates_cannot_leave_their_box(tmp_path: Path, template: str) -> None:
    with pytest.raises(PortError, match="unsafe"):
        with_template(tmp_path, template).chat([])


def test_a_template_that_does_not_parse_names_its_line(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"line 2 does not parse.*chat_template\.jinja"):
        with_template(tmp_path, "ok\n{% if %}").chat([])


def test_a_template_inside_the_settings_serves_where_there_is_no_file(tmp_path: Path) -> None:
    directory = copy(tmp_path)
    (directory / "chat_template.jinja").unlink()
    with pytest.raises(CheckpointError, match="it has no chat template"):
        Tokens(directory).chat([])
    change = {"chat_template": "from settings", "bos_token": {"content": "<b>", "special": True}}
    edit_json(directory / "tokenizer_config.json", lambda document: document.update(change))
    assert Tokens(directory).chat([]) == "from settings"
    (directory / "chat_template.json").write_text('{"chat_template": "{{ bos_token }} from json"}')
    assert Tokens(directory).chat([]) == "<b> from json"


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
@pytest.mark.parametrize("content", [None, "{", "{}x"])
def test_an_absent_or_broken_file_is_refused_by_name(tmp_path: Path, name: str, content: str | None) -> None:
    directory = copy(tmp_path)
    if content is None:
        (directory / name).unlink()
    else:
        (directory / name).write_text(content)
    with pytest.raises(CheckpointError) as caught:
        Tokens(directory)
    assert str(directory / name) in str(caught.value)
    assert f"hf download OWNER/NAME {name}" in str(caught.value)


def test_environments_do_not_share_state() -> None:
    environment().globals["leak"] = 1
    assert "leak" not in environment().globals


def test_no_tokenizer_in_an_empty_directory(tmp_path: Path) -> None:
    shutil.copy(NANO / "tokenizer_config.json", tmp_path)
    with pytest.raises(CheckpointError, match=r"tokenizer\.json: it cannot be read"):
        Tokens(tmp_path)
