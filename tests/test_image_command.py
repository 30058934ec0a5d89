"""`python -m port generate QUESTION --image FILE`: an answer to standard output, or one line that names the file."""

import subprocess
import sys
from pathlib import Path

import pytest
from pictures import DRAWN

ROOT = Path(__file__).resolve().parent.parent
SHORT = ("--max-tokens", "4", "--max-canvas", "4", "--steps", "2", "--seed", "1", "--soft-tokens", "70")


def port(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, "-m", "port", "generate", *arguments, "--checkpoint", "goldens/nano/trained", *SHORT)
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.fixture
def words(tmp_path: Path) -> Path:
    path = tmp_path / "words.png"
    path.write_bytes(DRAWN["words"]())
    return path


def test_pictures_are_answered_about(words: Path) -> None:
    child = port("What is this?", "--image", str(words), "--image", str(words))
    assert child.returncode == 0, child.stderr
    assert child.stdout.strip()


def test_a_bad_picture_is_one_line_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "list.png"
    path.write_text("A shopping list.")
    child = port("What is this?", "--image", str(path))
    assert child.returncode == 2
    assert child.stdout == ""
    assert child.stderr.startswith(f"error: {path}: it is no picture. Expected: ")
    assert len(child.stderr.splitlines()) == 1
