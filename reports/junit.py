"""The verdicts as JUnit XML, the form that CI systems read: a suite per stage, a test case per verdict."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

from reports.report import Report, by_stage, state_of
from reports.text import printable
from reports.verdict import Status, Verdict, line

#: What is neither PASS nor FAIL is an error to CI: JUnit's `skipped` would show it green.
BROKEN = frozenset({Status.ERROR, Status.STALE})


def write(path: Path, report: Report) -> None:
    """Write `report` to `path`, in place of what is there.

    Raises:
        OSError: the file cannot be written.
    """
    path.write_bytes(document(report))


def document(report: Report) -> bytes:
    """The XML document, UTF-8. A stage without verdicts is one test case that fails: nothing passes unseen."""
    root = ET.Element("testsuites", name="lockstep")
    totals = {"tests": 0, "failures": 0, "errors": 0}
    for stage, found in by_stage(report):
        suite = ET.SubElement(root, "testsuite", name=f"{printable(stage.model)}.{printable(stage.name)}")
        counts = {"tests": len(found.verdicts), "failures": 0, "errors": 0}
        for verdict in found.verdicts:
            _case(suite, verdict, counts)
        if not found.verdicts:
            counts |= {"tests": 1, "failures": 1}
            case = ET.SubElement(suite, "testcase", classname=suite.get("name", ""), name="judged")
            ET.SubElement(case, "failure", type="LOCKED", message=state_of(stage))
        for key, count in counts.items():
            suite.set(key, str(count))
            totals[key] += count
    for key, count in totals.items():
        root.set(key, str(count))
    ET.indent(root, "")
    text: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def _case(suite: ET.Element, verdict: Verdict, counts: dict[str, int]) -> None:
    parts = (verdict.case, verdict.mode, verdict.occurrence, verdict.tensor)
    name = " ".join(printable(part) for part in parts if part)
    case = ET.SubElement(suite, "testcase", classname=suite.get("name", ""), name=name)
    if verdict.status is Status.PASS:
        return
    kind = "error" if verdict.status in BROKEN else "failure"
    counts[f"{kind}s"] += 1
    ET.SubElement(case, kind, type=str(verdict.status), message=printable(line(verdict)))
