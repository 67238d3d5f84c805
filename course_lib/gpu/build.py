"""The instances that cases launch, built for this card without a launch: `python -m course_lib.gpu.build`.

A first run on a card is mostly nvcc: all cores build at once. What fails is named and stops no other."""
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import torch

from course_lib.gpu import pretend
from course_lib.gpu.cases import CASES


def model_here() -> pretend.Model:
    """This machine's card, as the wrappers see it."""
    properties = torch.cuda.get_device_properties(0)
    limit = getattr(properties, "shared_memory_per_block_optin",
                    pretend.RTX_4090.shared_memory_per_block_optin)
    return pretend.Model(properties.name, (properties.major, properties.minor),
                         properties.multi_processor_count, limit,
                         properties.L2_cache_size, properties.total_memory)


def instances(cases, model: pretend.Model = pretend.H100) -> dict[tuple, pretend.Launch]:
    """A launch per kernel, or instance of a template, of these cases on such a card. Nothing is computed."""
    found = {}
    for case in cases:
        with pretend.card(model, run=False) as card:
            for shape in (*case.small, *case.large):
                if not case.unfit(shape, "cuda"):
                    case.run(*case.arguments(shape, "cuda"))
        for launch in card.launches:
            found[launch.module.name, launch.text.name, launch.instance] = launch
    return found


def architectures(path) -> tuple[str, ...]:
    """What a file of kernels is compiled for: instructions of Hopper alone have an architecture of their own."""
    text = path.read_text(encoding="utf-8")
    return ("sm_90a",) if "asynchronous.cuh" in text or "warpgroup.cuh" in text else ("sm_80", "sm_90")


def build(launches, device, say=print) -> list[str]:
    """The names of what does not build."""
    failed, began = [], time.monotonic()

    def one(launch):
        try:
            launch.module._library_gpu(launch.text, launch.instance, device)
        except Exception as problem:
            failed.append(launch.name)
            say(f"{launch.name} was not built: {str(problem).strip().splitlines()[0][:300]}", flush=True)
        return launch

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for done, _ in enumerate(pool.map(one, launches), 1):
            if done % 20 == 0 or done == len(launches):
                say(f"built {done} of {len(launches)} in {time.monotonic() - began:.0f} s", flush=True)
    return failed


def main(argv: list[str]) -> int:
    if not torch.cuda.is_available():
        print("gpu.build: there is no CUDA device here, so nothing was built.", file=sys.stderr)
        return 1
    chosen = [case for case in CASES if not argv or set(argv) & set(case.kernels)]
    launches = list(instances(chosen, model_here()).values())
    return 1 if build(launches, torch.device("cuda", torch.cuda.current_device())) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
