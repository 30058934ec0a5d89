"""Arrays that the framework refuses to put together though each is the oracle's: one of them should not be there."""

from stages.trace.frames import Frame
from stages.trace.sites import Site
from stages.trace.slices import deciding, governing, inputs, spot
from stages.trace.whence import Trail

from .choice import failed_in, risen
from .sides import Sides, trail_of


def unfit_at(sides: Sides) -> tuple[Site, ...]:
    """Lines that decided that there is a value which a statement then could not use, the likeliest first.

    The statement ran because the value is there: what is asked is who made it so, not what it was made of.
    """
    trail = trail_of(sides)
    inner = None if trail is None else failed_in(trail)
    if trail is None or inner is None or inner.raised is None:
        return ()
    return tuple(dict.fromkeys(_decided(trail, inner, inner.raised[0])))


def _decided(trail: Trail, frame: Frame, when: int) -> list[Site]:
    at = spot(frame, when)
    asked = governing(at)
    for one in inputs(trail, asked) if asked is not None else ():
        made = risen(trail, one)
        if made is None or made[0].first not in deciding(made[0].frame.code):
            continue
        why = [each.source for each in inputs(trail, made[0]) if isinstance(each.value, bool) and not each.given]
        if asked is not None:
            return [
                *(each.site for each in why if each is not None and not each.door),
                made[0].site,
                asked.site,
                at.site,
            ]
    return []
