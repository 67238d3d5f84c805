"""How long each pipe of a card would be busy with a launch, in every cycle, on every multiprocessor, at boost clock.

Of memory and tensor cores it is a bound. How often instructions run is modelled, and passes of shared memory are the
source's where the machine code does not tell: nvcc merges loads, and an H200 ran chapter 6's rung 3 in a third of its."""
from ..report import LaunchReport

SCHEDULERS = 4                   # warp instructions per cycle of a multiprocessor
SPECIAL_LANES = 16               # powers of 2, reciprocals and their like per cycle of a multiprocessor
NEEDED = ("name", "arch", "memory_gb_per_s")


def bound(card: dict, inside: dict, launch: LaunchReport | None) -> dict:
    """{"card", "pipes": [{pipe, work, unit, known, microseconds}], "binds"}.

    A pipe that the data sheet does not give is left out."""
    missing = [name for name in NEEDED if name not in card]
    if missing:
        raise ValueError(f"card: its data sheet lacks {', '.join(missing)}")
    if card["arch"] != inside["arch"].rstrip("af"):
        raise ValueError(f"card: {card['name']} is {card['arch']}; the kernel was built for {inside['arch']}")
    if launch is None:
        raise ValueError("card: a bound needs counts; pass launch=report.launches[0] of a `with profile()`")
    pipes = [*_on_chip(card, inside, launch), *_memory(card, launch)]
    least = [p for p in pipes if p["pipe"] != "memory, if nothing were cached"]
    longest = max(least, key=lambda p: p["microseconds"])
    return {"card": card["name"], "pipes": pipes, "binds": longest["pipe"]}


def _on_chip(card: dict, inside: dict, launch: LaunchReport) -> list[dict]:
    pipes = []
    if "multiprocessors" in card and "clock_ghz" in card:
        cycles = card["multiprocessors"] * card["clock_ghz"] * 1e3           # of all of them, per microsecond
        done = inside.get("executed")
        if done:
            issued = sum(done.values())
            pipes.append(_pipe("issuing instructions", issued, "warp instructions", "modelled",
                               issued / (SCHEDULERS * cycles)))
            if "fp32_lanes" in card:
                pipes.append(_pipe("FP32", done.get("FP32", 0), "warp instructions", "modelled",
                                   32 * done.get("FP32", 0) / (card["fp32_lanes"] * cycles)))
            special = done.get("special", 0)
            pipes.append(_pipe("exponentials, reciprocals", special, "warp instructions", "modelled",
                               32 * special / (SPECIAL_LANES * cycles)))
        passes, known = _passes(inside.get("as_compiled", {}), launch)
        pipes.append(_pipe("shared memory", passes, "passes", known, passes / cycles))
    flops = inside.get("tensor_flops", 0)
    if flops and "tensor_tflops" in card:
        pipes.append(_pipe("tensor cores", flops, "operations", "modelled",
                           flops / (card["tensor_tflops"] * 1e6)))
    return pipes


def _passes(compiled: dict, launch: LaunchReport) -> tuple[int, str]:
    told = [compiled.get("shared load"), compiled.get("shared store")]
    written = [launch.shared_load.wavefronts, launch.shared_store.wavefronts]
    merged = [asked[1] if asked and n else n for asked, n in zip(told, written)]
    return sum(merged), "as compiled" if all(told) else "as written"


def _memory(card: dict, launch: LaunchReport) -> list[dict]:
    per_us = card["memory_gb_per_s"] * 1e3
    both = (launch.global_load, launch.global_store)
    unique, moved = sum(t.unique for t in both), sum(t.moved for t in both)
    return [_pipe("memory, each sector once", unique, "bytes", "counted", unique / per_us),
            _pipe("memory, if nothing were cached", moved, "bytes", "counted", moved / per_us)]


def _pipe(name: str, work: float, unit: str, known: str, microseconds: float) -> dict:
    return {"pipe": name, "work": round(work), "unit": unit, "known": known, "microseconds": microseconds}
