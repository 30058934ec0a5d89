"""`python -m goldens.nano [--variant sidecar|inline] [OUT]`: rebuild the nano checkpoint."""

from __future__ import annotations

from pathlib import Path

import click

from goldens.nano.architecture import Variant
from goldens.nano.build import CHECKPOINT, digest, write


@click.command()
@click.option("--variant", type=click.Choice(["sidecar", "inline"]), default="sidecar", show_default=True)
@click.argument("out", type=click.Path(file_okay=False, path_type=Path), required=False)
def main(variant: Variant, out: Path | None) -> None:
    """Rebuild the nano checkpoint into OUT (default: where the sidecar variant is committed)."""
    if out is None:
        if variant != "sidecar":
            message = (
                "the inline variant is not committed; name a folder for it: python -m goldens.nano --variant inline OUT"
            )
            raise click.UsageError(message)
        out = CHECKPOINT
    files = write(variant, out)
    size = sum(len(content) for content in files.values())
    click.echo(f"{variant} checkpoint in {out}: {len(files)} files, {size:,} bytes, digest {digest(files)}")


if __name__ == "__main__":
    main()
