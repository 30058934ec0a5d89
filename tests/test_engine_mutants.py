"""Each one-line change of the engine is caught, and first at the stage whose business it is."""

import pytest
from mutation import Change, objection, planted

CHANGES = (
    Change(
        "the reciprocal of the temperature",
        "schedule.temper",
        "logits_BCV / temperature",
        "logits_BCV * (1 / temperature)",
        "temperature",
        ("prefill",),
    ),
    Change(
        "a history that is a view of the canvas",
        "stopping.stable",
        "argmax_BC == before",
        "argmax_BC == argmax_BC",
        "stopping",
    ),
    Change(
        "token 50 in the stop set",
        "generate.stop_tokens",
        "| settings.eos",
        "| settings.eos | {50}",
        "generate",
        ("stops",),
    ),
    Change(
        "not all accepted on the last step",
        "samplers.accept_confidence",
        "if last:",
        "if False:",
        "accept_confidence",
    ),
    Change(
        "no best position forced",
        "samplers.accept_confidence",
        "return sure_BC | forced_BC",
        "return sure_BC",
        "accept_confidence",
    ),
    Change(
        "a sum of entropies without the running maximum taken off",
        "samplers.accept_entropy",
        " - mx.cummax(sorted_BC, axis=-1)",
        "",
        "accept_entropy",
    ),
    Change(
        "re-noise drawn on the last step too, before the next canvas' first noise",
        "canvas.advance",
        "    if last and not options.show:\n",
        "    if last and not options.show:\n        draws.tokens(argmax_BC.shape[1])\n",
        "denoise_canvas",
        ("entropy",),
    ),
    Change(
        "revealed positions filled with noise again",
        "samplers.step_confidence",
        "renoise(revealed_BC, draft_BC, noise_BC)",
        "renoise(accepted_BC, draft_BC, noise_BC)",
        "renoise",
        ("confidence",),
    ),
    Change(
        "the signal from logits that no temperature divided",
        "canvas.advance",
        "signal(processed_BCV, sampled, embedding)",
        "signal(logits_BCV, sampled, embedding)",
        "denoise_canvas",
        ("confidence",),
    ),
    Change(
        "the signal kept from one canvas to the next",
        "canvas.denoise",
        "logits_BCV = forward(carry.canvas.tokens, carry.signal)\n",
        "kept = vars(embedding)['kept'] = vars(embedding).get('kept') if carry.signal is None else carry.signal\n"
        "        logits_BCV = forward(carry.canvas.tokens, kept)\n",
        "denoise_canvas",
        ("confidence",),
    ),
    Change(
        "the second canvas one position too early",
        "generate._Generation.events",
        "self.model.encode(finished_BC, cache)",
        "self.model.encode(finished_BC[:, :-1], cache)",
        "generate",
        ("confidence",),
    ),
)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.name)
def test_a_change_is_caught_first_where_it_was_made(change):
    with planted(change):
        stage, verdict = objection(change.cases)
    assert stage == change.stage, f"{stage or 'nobody'} objected first: {verdict}"


def test_nobody_objects_to_the_port_as_it_is():
    assert objection(("decisions", "stops", "confidence", "entropy")) == ("", "")
