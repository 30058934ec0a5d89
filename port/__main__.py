"""The port's own door: `python -m port generate PROMPT --checkpoint DIR`, and what MetaDiffusion needs besides.

Exit codes: 0 done; 2 a value that is not allowed; 3 a checkpoint that cannot be used.
"""

import os
import sys
from pathlib import Path
from typing import Any

import click

from port.errors import OptionError, PictureError, PortError
from port.metadiffusion import cli as metadiffusion


class _Commands(click.Group):
    """`generate` is the command of the model that its checkpoint is of."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """The command that a command line names; see the class."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, metadiffusion.generate if name == "generate" and metadiffusion.is_asked(rest) else command, rest


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """DiffusionGemma and MetaDiffusion on MLX."""


@main.command()
@click.argument("prompt")
@click.option(
    "--checkpoint", required=True, type=click.Path(path_type=Path, file_okay=False), help="Directory of the weights."
)
@click.option("--compute", default="bfloat16", show_default=True, metavar="bfloat16|float32", help="Compute dtype.")
@click.option("--chat", is_flag=True, help="PROMPT is what a user says: put it through the chat template.")
@click.option(
    "--image",
    "images",
    multiple=True,
    type=click.Path(path_type=Path),
    help="A picture to show, before what PROMPT says; may be repeated. Implies --chat.",
)
@click.option("--soft-tokens", type=int, default=280, show_default=True, help="Most that a picture may take.")
@click.option(
    "--sampler", default="confidence-threshold", show_default=True, metavar="confidence-threshold|entropy-bound"
)
@click.option("--temperature", type=float, default=0.0, show_default=True, help="0 takes the best tokens.")
@click.option("--max-tokens", type=int, default=512, show_default=True)
@click.option("--seed", type=int, help="Of the random tokens; without one they differ from run to run.")
@click.option("--steps", type=int, help="Denoising steps of each canvas [48].")
@click.option("--threshold", type=float, default=0.9, show_default=True, help="Of the confidence sampler.")
@click.option("--entropy-bound", type=float, help="Of the entropy sampler, in nats [0.1].")
@click.option("--min-canvas", type=int, help="Least tokens of a canvas [64].")
@click.option("--max-canvas", type=int, help="Most tokens of a canvas [the model's].")
@click.option("--full-canvas", is_flag=True, help="Every canvas as long as the model's.")
@click.option("--static-cache", is_flag=True, help="Buffers of their final length from the start.")
@click.option("--prefill-step", type=int, help="Prompt tokens encoded at a time [all].")
@click.option("--compile", "compiled", is_flag=True, help="Compile the canvas pass.")
@click.option("--generation-config", is_flag=True, help="Follow generation_config.json: stopping, schedule, stop set.")
@click.option("--show-unmasking", is_flag=True, help="Show the canvas as it un-masks; the last step then samples too.")
@click.option("--unmasking-interval", type=int, default=1, show_default=True, help="Steps between pictures.")
def generate(prompt: str, **given: Any) -> None:
    """Answer PROMPT, streaming the text; tokens, steps, blocks and speed go to standard error."""
    try:
        _generate(prompt, given)
    except (OptionError, PictureError) as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(2)
    except PortError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(3)


def _generate(prompt: str, given: dict[str, Any]) -> None:
    # Imported here, so that --help and wrong values need no model.
    from port.diffusion_gemma.display import show  # noqa: PLC0415
    from port.diffusion_gemma.draws import Generator  # noqa: PLC0415
    from port.diffusion_gemma.generate import stream  # noqa: PLC0415
    from port.diffusion_gemma.model import load  # noqa: PLC0415
    from port.diffusion_gemma.options import Options, read_generation_config  # noqa: PLC0415
    from port.diffusion_gemma.sight import Sight, see  # noqa: PLC0415
    from port.diffusion_gemma.tokens import Tokens  # noqa: PLC0415

    names = ("sampler", "temperature", "max_tokens", "steps", "threshold", "entropy_bound", "min_canvas", "max_canvas")
    more = ("full_canvas", "static_cache", "prefill_step")
    options = Options(
        **{name: given[name] for name in (*names, *more)},
        compile=given["compiled"],
        show=given["show_unmasking"],
        show_every=given["unmasking_interval"],
    )
    if given["compute"] not in ("bfloat16", "float32"):
        raise OptionError(
            "--compute", found=f"it is {given['compute']!r}", expected="bfloat16 or float32", mend="give one of the two"
        )
    directory: Path = given["checkpoint"]
    config = read_generation_config(directory) if given["generation_config"] else None
    model, tokens = load(directory, given["compute"]), Tokens(directory)
    draws = Generator(model.config.text_config.vocab_size, _seed(given["seed"]))
    asked: str | list[int] | Sight = prompt
    if given["images"]:
        asked = see(model, prompt, given["images"], budget=given["soft_tokens"], tokens=tokens)
    elif given["chat"]:  # the template writes the beginning token itself
        asked = tokens.encode(tokens.chat([{"role": "user", "content": prompt}]), special=False)
    show(stream(model, tokens, asked, options, generation_config=config, draws=draws))


def _seed(given: int | None) -> int:
    if given is None:
        return int.from_bytes(os.urandom(4), "little")
    if not 0 <= given < 2**64:
        raise OptionError(
            "--seed", found=f"it is {given}", expected="a whole number from 0 to 2^64 - 1", mend="give such a seed"
        )
    return given


main.add_command(metadiffusion.convert)
main.add_command(metadiffusion.train)

if __name__ == "__main__":
    main()
