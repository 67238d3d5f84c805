"""Functions of mathematics, and printf, that write through a pointer: what they write is counted and
checked."""
import math

import pytest
import torch

import laptop_cuda as cuda

CALLS = {"sincosf": "float c; sincosf(x[0], {}, &c);", "sincospif": "float c; sincospif(x[0], &c, {});",
         "__sincosf": "float c; __sincosf(x[0], {}, &c);", "modff": "modff(x[0], {});",
         "std::modf": "float part = std::modf(x[0], {}); if (part > 2) return;",
         "frexpf": "frexpf(x[0], (int*){});", "remquof": "remquof(x[0], 0.3f, (int*){});"}
SOURCE = "#include <cmath>\n" + "".join(
    f"__global__ void inside{n}(const float* x, float* out) {{ {call.format('out')} }}\n"
    f"__global__ void outside{n}(const float* x, float* out) {{ {call.format('out + 1000')} }}\n" for n, call in enumerate(CALLS.values())) + """
__global__ void percent(const float* x, float* out) { printf("%5d%%\\n%*d%n", 1, 3, 1, (int*)out); }
"""


def test_what_mathematics_writes_is_counted_and_checked():
    x = torch.tensor([1.25])
    with cuda.sanitize():
        module = cuda.compile(SOURCE)
    for number, name in enumerate(CALLS):
        with cuda.profile() as report:
            module[f"inside{number}"][1, 1](x, out := torch.zeros(4))
        assert report.launches[0].global_store.bytes == 4, name
        with cuda.sanitize(), pytest.raises(cuda.KernelError, match="out of bounds"):
            module[f"outside{number}"][1, 1](x, torch.zeros(4))
    module["inside0"][1, 1](x, out)
    assert out[0].item() == pytest.approx(math.sin(1.25))
    module["inside3"][1, 1](x, out)
    assert out[0].item() == 1
    with cuda.sanitize(), pytest.raises(cuda.KernelError, match="%n"):
        module["percent"][1, 1](x, torch.zeros(4))
