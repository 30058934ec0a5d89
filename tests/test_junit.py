from xml.etree import ElementTree as ET

from test_html import HOSTILE, report, stage, verdict

from reports import junit
from reports.report import Report
from reports.verdict import Status


def test_every_verdict_is_a_test_case_and_only_pass_is_green():
    root = ET.fromstring(junit.document(report()))
    suites = {suite.get("name"): suite for suite in root}
    assert list(suites) == ["gemma.router", "gemma.moe", "gemma.layer"]
    assert (root.get("tests"), root.get("failures"), root.get("errors")) == ("9", "3", "0")
    failure = suites["gemma.moe"].find("testcase/failure")
    assert failure.get("message").startswith("FAIL moe[encoder/layer=5].h exact: 7 differing bits (bound 0) at B=0")
    assert suites["gemma.layer"].find("testcase/failure").get("type") == "LOCKED"
    assert suites["gemma.router"].find("testcase/failure") is None


def test_a_stage_without_verdicts_fails_and_stale_is_an_error():
    stale = verdict(status=Status.STALE, note="it is gone")
    root = ET.fromstring(junit.document(Report((stage("router", None), stage("moe", Status.STALE)), (stale,))))
    assert (root.get("tests"), root.get("failures"), root.get("errors")) == ("2", "1", "1")


def test_names_that_xml_cannot_hold_are_spelled_out(tmp_path):
    odd = verdict(1.0, occurrence=f"{HOSTILE}\x00\x1b]0;", tensor=HOSTILE)
    junit.write(tmp_path / "a.xml", Report((stage("moe", Status.FAIL),), (verdict("moe", 1.0, odd.occurrence),)))
    (case,) = ET.parse(tmp_path / "a.xml").getroot().iter("testcase")
    assert HOSTILE in case.get("name")
    assert r"\x00\x1b" in case.get("name")
