import io

import pytest

from reports.report import Report, StageInfo
from reports.text import markdown, plain, show
from reports.verdict import Status, Verdict

MODEL = "diffusion_gemma"


def verdict(stage="moe", status=Status.PASS, value=0.0, occurrence="encoder/layer=5", mode="forced", **rest):
    fields = {"case": "long/bfloat16", "tensor": "h", "gate": "exact", "bound": 0.0, "where": "", "note": ""} | rest
    return Verdict(MODEL, stage, occurrence, mode, status=status, value=value, **fields)


def stage(name, state=Status.PASS, waits_for=(), **rest):
    return StageInfo(MODEL, name, waits_for, state, waits_for, seconds=0.5, **rest)


GREEN = Report(
    (stage("router"), stage("moe")), tuple(verdict(s, mode=m) for s in ("router", "moe") for m in ("forced", "free"))
)
RED = Report(
    (stage("router", Status.FAIL), stage("moe", Status.LOCKED, ("router",))),
    (
        *(
            verdict("router", Status.FAIL, 7.0, f"encoder/layer={n}", "free", where="N=4, E=6", note="oracle 1, port 2")
            for n in range(4)
        ),
        *(verdict("router", Status.FAIL, 3.0, f"encoder/layer={n}") for n in range(4)),
        *(verdict("router", occurrence=f"canvas=0/step={n}") for n in (2, 1)),
        verdict("moe", Status.LOCKED, None, "", gate="", bound=None, tensor="", case="", note="waits for router"),
    ),
)


def test_a_green_table_says_that_no_bit_differs():
    assert plain(GREEN).splitlines() == [
        "stage   state  cases  occurrences  forced  free  gate     tier     time",
        "router  PASS       1            1       0     0  exact 0  exact  0.50 s",
        "moe     PASS       1            1       0     0  exact 0  exact  0.50 s",
        "",
        "2 stages: 2 PASS",
        "4 verdicts: 4 PASS; tier exact",
        "max differing bits 0",
    ]


def test_free_runs_that_ties_parted_are_named_once_each():
    tied = {"note": "followed 5 of 6 steps, then a tie; 0 ties", "mode": "free", "tier": "portable"}
    rows = [verdict(occurrence=f"run={n}/canvas=0/{kind}", **tied) for n in range(7) for kind in ("forced", "free")]
    lines = plain(Report((stage("moe"),), (*rows, verdict()))).splitlines()
    assert lines.count("free run of long/bfloat16 run=3: followed 5 of 6 steps, then a tie") == 1
    assert lines[-2] == "... and 2 more that ties parted"


def test_a_red_table_shows_five_failures_forced_first_and_counts_the_rest():
    lines = plain(RED).splitlines()
    assert lines[1].split()[:7] == ["router", "FAIL", "1", "6", "3", "7", "exact"]
    assert [line.partition(" at ")[0] for line in lines[2:8]] == [
        *(
            f"  FAIL router[encoder/layer={n}].h exact: 3 differing bits (bound 0)  [long/bfloat16, forced, exact]"
            for n in range(4)
        ),
        "  FAIL router[encoder/layer=0].h exact: 7 differing bits (bound 0)",
        "  ... and 3 more in router",
    ]
    assert lines[6].endswith(" at N=4, E=6: oracle 1, port 2  [long/bfloat16, free, exact]")
    assert lines[8].split() == ["moe", "LOCKED", "-", "-", "-", "-", "-", "exact", "-", "waits", "for", "router"]
    assert lines[-2:] == ["2 stages: 1 FAIL, 1 LOCKED", "11 verdicts: 8 FAIL, 1 LOCKED, 2 PASS; tier exact"]


@pytest.mark.parametrize(
    "report",
    [
        RED,
        Report((), ()),
        Report((stage("moe"),), (verdict(tier="portable"),)),
        Report((stage("moe"), stage("rope", state=None)), (verdict(),)),
        Report((stage("moe", Status.FAIL),), (verdict(),)),
        Report((stage("moe"),), (verdict(gate="within(2)", bound=2.0, value=1.0),)),
    ],
    ids=["red", "empty", "portable", "not judged", "state", "another gate"],
)
def test_no_bits_are_claimed_unless_the_exact_tier_passed_everywhere(report):
    assert "max differing bits" not in plain(report)


def test_the_tier_and_the_primitives_that_forbid_the_exact_one_are_named():
    report = Report(
        (stage("moe"),),
        (verdict(tier="portable", gate="within(2)", bound=2.0, value=1.25),),
        "portable",
        differing={"a": ("sdpa", "rope"), "b": ["rope", "sdpa"], "c": ()},
    )
    assert "within 2  portable" in plain(report)
    assert "canary differs in rope, sdpa: from 2 of 3 goldens" in plain(report)


def test_a_row_whose_modes_have_other_gates_says_which_is_which():
    report = Report((stage("moe"),), (verdict(), verdict(mode="free", gate="within(2)", value=1.5, bound=2.0)))
    assert plain(report).splitlines()[1].split()[4:9] == ["0", "(exact", "0)", "1.5", "within"]


def test_what_comes_from_the_ledger_is_marked():
    assert plain(Report((stage("moe", fresh=False),), (verdict(),))).splitlines()[1].endswith("from the ledger")


def test_names_cannot_steer_a_terminal():
    hostile = Report((stage("moe", Status.FAIL),), (verdict(status=Status.FAIL, value=1.0, note="\x1b[2J\rPASS\n"),))
    assert "\x1b" not in plain(hostile)
    assert "\\x1b[2J\\rPASS\\n" in plain(hostile)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_pipe_gets_plain_text():
    file = io.StringIO()
    show(RED, file)
    assert file.getvalue() == plain(RED)


@pytest.mark.parametrize(("variable", "coloured"), [("NO_COLOR", False), ("FORCE_NOTHING", True)])
def test_a_terminal_gets_colour_unless_it_asks_for_none(monkeypatch, variable, coloured):
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv(variable, "1")
    file = Terminal()
    show(RED, file)
    text = file.getvalue()
    assert ("\x1b[1;31m" in text) == coloured
    assert "router" in text
    assert "waits for router" in text
    assert "... and 3 more in router" in text


def test_markdown_is_a_table_with_the_failures_below():
    lines = markdown(RED).splitlines()
    assert lines[0] == "**2 stages: 1 FAIL, 1 LOCKED**  "
    assert lines[3].startswith("| stage | state | cases |")
    assert lines[5] == "| router | FAIL | 1 | 6 | 3 | 7 | exact 0 | exact | 0.50 s |  |"
    assert lines[6] == "| moe | LOCKED | - | - | - | - | - | exact | - | router |"
    assert lines[8] == "```text"
    assert lines[-2:] == ["... and 3 more in router", "```"]


def test_markdown_is_not_broken_by_names():
    note = "a ``` fence | pipe"
    hostile = Report((stage("a|b<script>", Status.FAIL),), (verdict("a|b<script>", Status.FAIL, 1.0, note=note),))
    lines = markdown(hostile).splitlines()
    assert lines[5].startswith("| a\\|b\\<script\\> |")
    assert lines[7] == "````text"
    assert lines[-1] == "````"


def test_a_green_markdown_has_no_failures():
    assert "```" not in markdown(GREEN)
    assert "**max differing bits 0**" in markdown(GREEN)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_narrow_terminal_goes_without_columns_rather_than_breaking_rows(monkeypatch, width):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(width))
    names = [f"{n}_a_rather_long_name" for n in range(20)]
    file = Terminal()
    show(Report(tuple(stage(name) for name in names), tuple(verdict(name) for name in names)), file)
    rows = file.getvalue().splitlines()[1:21]
    assert [row.split()[0] for row in rows] == names
    assert all(len(row) <= width for row in rows)
