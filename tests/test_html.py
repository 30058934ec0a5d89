import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from reports import html
from reports.report import Gate, Report, StageInfo, Tensor
from reports.verdict import Status, Verdict, Worst

ROOT = Path(html.__file__).parents[1]
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&"
GATES = (Gate("exact", "exact", 0.0), Gate("portable", "within", 2.0, "the oracle's own rounding"))


def verdict(stage="moe", value=0.0, occurrence="encoder/layer=5", mode="forced", **rest):
    status = Status.PASS if value == 0 else Status.FAIL
    fields = {
        "case": "long/bfloat16",
        "tensor": "h",
        "status": status,
        "gate": "exact",
        "bound": 0.0,
        "where": "",
        "note": "",
    }
    return Verdict("gemma", stage, occurrence, mode, value=value, **fields | rest)


def stage(name, state=Status.PASS, after=(), **rest):
    fields = {
        "takes": (Tensor("x", "B T D"),),
        "gives": (Tensor("h", "B T D", GATES),),
        "command": f"harness run {name}",
    } | rest
    return StageInfo("gemma", name, after, state, **fields)


def report():
    worst = (Worst((0, 4, 6), "-3.9958", "-3.9998", "0xc080", "0xc081", 1.0),)
    verdicts = [
        verdict("router", occurrence=f"encoder/layer={n}", mode=m) for n in range(3) for m in ("forced", "free")
    ]
    verdicts.append(verdict("moe", 7.0, where="B=0, T=4, D=6", note="oracle -3.9958, port -3.9998", worst=worst))
    verdicts.append(verdict("moe", float("nan"), "encoder/layer=6", note="port is nan"))
    blank = {"status": Status.LOCKED, "gate": "", "bound": None, "tensor": "", "case": "", "note": "waits for moe"}
    verdicts.append(verdict("layer", None, "", **blank))
    stages = (
        stage("router"),
        stage("moe", Status.FAIL, ("router",)),
        stage("layer", Status.LOCKED, ("moe",), waits_for=("moe",)),
    )
    return Report(
        stages,
        tuple(verdicts),
        manifests={"long/bfloat16": {"oracle": {"version": "0.7.7"}, "seed": 7}},
        environment={"device": "cpu", "packages": {"mlx": "0.32.4"}},
        canary={"matmul": "ab" * 32, "rope": "cd" * 32},
        differing={"long/bfloat16": ("rope",)},
    )


class Page(HTMLParser):
    """Tags that stand in a page, its ids, and its text."""

    VOID = frozenset({"meta", "link", "br", "img", "input", "hr"})

    def __init__(self, text):
        super().__init__()
        self.tags, self.ids, self.words, self.open = [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.ids += [value for name, value in attrs if name == "id"]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not self.open or self.open[-1] not in {"style", "script"}:
            self.words.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


def test_every_link_leads_somewhere_and_every_tag_is_closed():
    texts = html.pages(report())
    pages = {name: Page(text) for name, text in texts.items()}
    assert list(pages) == ["index.html", "gemma.router.html", "gemma.moe.html", "gemma.layer.html"]
    for name, page in pages.items():
        assert len(page.ids) == len(set(page.ids))
        for tag, attributes in page.tags:
            if tag == "a":
                target, _, anchor = attributes["href"].partition("#")
                assert not anchor or anchor in pages[target or name].ids


def test_pages_fetch_nothing_and_run_nothing_but_their_own_script():
    for text in html.pages(report()).values():
        assert not re.search(r"https?:|//[a-z]|@import|url\(|<iframe|srcset", text)
        page = Page(text)
        assert not [
            attributes for _, attributes in page.tags for name in attributes if name.startswith("on") or name == "style"
        ]
        assert {attributes.get("src") for _, attributes in page.tags} == {None}
        policy = next(
            attributes["content"] for tag, attributes in page.tags if tag == "meta" and "http-equiv" in attributes
        )
        assert policy.startswith("default-src 'none'")
        assert "unsafe" not in policy


def test_the_policy_names_the_very_bytes_of_style_and_script():
    text = html.pages(report())["index.html"]
    for tag in ("style", "script"):
        body = re.search(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL).group(1)
        assert html._source(body).replace("'", "&#39;") in text


def test_names_from_files_are_inert():
    hostile = Report(
        (
            StageInfo(
                HOSTILE,
                HOSTILE,
                (),
                Status.FAIL,
                (HOSTILE,),
                (Tensor(HOSTILE, HOSTILE),),
                (Tensor(HOSTILE, "D", GATES),),
                HOSTILE,
            ),
        ),
        (
            Verdict(
                *(
                    HOSTILE,
                    HOSTILE,
                    HOSTILE,
                    "forced",
                    HOSTILE,
                    HOSTILE,
                    Status.FAIL,
                    "exact",
                    1.0,
                    0.0,
                    HOSTILE,
                    HOSTILE,
                ),
                worst=(Worst((1, 2), HOSTILE, HOSTILE, HOSTILE, HOSTILE, 1.0),),
            ),
        ),
        manifests={HOSTILE: {HOSTILE: HOSTILE}},
        environment={HOSTILE: HOSTILE},
        canary={HOSTILE: HOSTILE},
        differing={HOSTILE: (HOSTILE,)},
    )
    plain = html.pages(report())
    for name, text in html.pages(hostile).items():
        assert re.fullmatch(r"[A-Za-z0-9_.~-]+", name)
        page = Page(text)
        assert [tag for tag, _ in page.tags].count("script") == 1
        assert "img" not in {tag for tag, _ in page.tags}
        assert HOSTILE in page.text
        known = {tag for other in plain.values() for tag, _ in Page(other).tags}
        assert {tag for tag, _ in page.tags} <= known


SCRIPT = "import sys, test_html; from pathlib import Path; test_html.html.write(Path(sys.argv[1]), test_html.report())"


def test_pages_depend_on_the_report_alone(tmp_path):
    for seed in ("1", "2"):
        environment = os.environ | {
            "PYTHONHASHSEED": seed,
            "TZ": f"UTC{seed}",
            "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}",
        }
        subprocess.run([sys.executable, "-c", SCRIPT, str(tmp_path / seed)], cwd=tmp_path, env=environment, check=True)
    first, second = ({p.name: p.read_bytes() for p in (tmp_path / seed).iterdir()} for seed in ("1", "2"))
    assert first == second
    assert str(ROOT).encode() not in b"".join(first.values())


def test_pages_of_stages_that_are_gone_are_removed_and_nothing_else(tmp_path):
    (tmp_path / "mine.html").write_text("<p>mine</p>")
    (tmp_path / "notes.txt").write_text("notes")
    html.write(tmp_path, report())
    html.write(tmp_path, Report((stage("router"),)))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["gemma.router.html", "index.html", "mine.html", "notes.txt"]


def test_a_write_that_fails_leaves_the_old_page(tmp_path, monkeypatch):
    paths = html.write(tmp_path, report())
    before = {path: path.read_bytes() for path in paths}

    def refuse(self, target):
        raise PermissionError(target)

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(PermissionError):
        html.write(tmp_path, Report((stage("router", Status.FAIL),)))
    assert {path: path.read_bytes() for path in sorted(tmp_path.iterdir())} == before


def test_a_page_shows_gates_with_reasons_elements_with_bits_and_how_to_run_it_again():
    text = Page(html.pages(report())["gemma.moe.html"]).text
    for expected in (
        "moe FAIL",
        "h B T D exact in force exact 0",
        "portable within 2 the oracle's own rounding",
        "FAIL moe[encoder/layer=5].h exact: 7 differing bits (bound 0) at B=0, T=4, D=6: oracle -3.9958, port -3.9998",
        "encoder/layer=5 h B=0, T=4, D=6 -3.9958 -3.9998 0xc080 0xc081 1 long/bfloat16 forced",
        "harness run moe --case long --compute bfloat16",
        "oracle.version 0.7.7",
        "2 FAIL",
    ):
        assert expected in text


def test_where_nothing_differs_the_page_says_so():
    text = Page(html.pages(report())["gemma.router.html"]).text
    assert (
        "Nothing differs: each of the 6 tensors compared is bit for bit the oracle's, over 1 case and 3 occurrences."
        in text
    )


def test_a_locked_page_names_what_it_waits_for():
    text = Page(html.pages(report())["gemma.layer.html"]).text
    assert "Waits for moe." in text
    assert "Nothing was judged here" in text


def test_the_index_has_a_row_a_node_and_a_grid_line_per_stage():
    page = Page(html.pages(report())["index.html"])
    assert page.text.count("LOCKED: waits for moe") == 1
    assert "1 FAIL, 1 LOCKED, 1 PASS" in page.text
    assert "differs from 1 of 1: long/bfloat16" in page.text
    links = [attributes["href"] for tag, attributes in page.tags if tag == "a"]
    assert links.count("gemma.layer.html") == 3
    assert "gemma.moe.html#case-long~2f~bfloat16" in links


def test_an_empty_report_is_a_page_too():
    assert "No case was judged." in Page(html.pages(Report(()))["index.html"]).text


def test_tensors_a_layer_take_the_axes_of_their_row():
    starred = stage("encoder", Status.FAIL, gives=(Tensor("keys.*", "B G S", GATES),))
    found = verdict("encoder", 1.0, tensor="keys.3", worst=(Worst((1, 2, 3), "1", "2", "0x1", "0x2", float("nan")),))
    assert (
        "keys.3 B=1, G=2, S=3 1 2 0x1 0x2 - long"
        in Page(html.pages(Report((starred,), (found,)))["gemma.encoder.html"]).text
    )


def test_manifests_say_once_what_they_agree_on():
    found = tuple(verdict(case=case) for case in ("a/float32", "b/float32"))
    manifests = {"a/float32": {"mlx": "0.32.4", "seed": 1}, "b/float32": {"mlx": "0.32.4", "seed": 2}}
    text = Page(html.pages(Report((stage("moe"),), found, manifests=manifests))["gemma.moe.html"]).text
    assert text.count("mlx 0.32.4") == 1
    assert "seed 1" in text
    assert "seed 2" in text
