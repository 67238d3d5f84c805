"""Thrust in whole programs: containers, iterators, algorithms; kernels on its memory are checked."""

PROGRAM = r"""
#include <cstdio>
#include <thrust/binary_search.h>
#include <thrust/copy.h>
#include <thrust/count.h>
#include <thrust/device_vector.h>
#include <thrust/execution_policy.h>
#include <thrust/functional.h>
#include <thrust/host_vector.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/zip_iterator.h>
#include <thrust/reduce.h>
#include <thrust/scan.h>
#include <thrust/sequence.h>
#include <thrust/sort.h>
#include <thrust/transform.h>
#include <thrust/transform_reduce.h>
#include <thrust/unique.h>
struct saxpy { float a; __host__ __device__ float operator()(float x, float y) const { return a * x + y; } };
struct square { __host__ __device__ float operator()(float x) const { return x * x; } };
__global__ void twice(float* x, int n) { int i = threadIdx.x; if (i < n) x[i] *= 2; }
int main(int argc, char**) {
    thrust::host_vector<float> h(8);
    for (int i = 0; i < 8; ++i) h[i] = float(i * 5 % 8);                  // 0 5 2 7 4 1 6 3
    thrust::device_vector<float> d = h, e(8);
    twice<<<1, 32>>>(thrust::raw_pointer_cast(d.data()), argc > 1 ? 9 : 8);
    thrust::sequence(e.begin(), e.end(), 1.0f);
    thrust::transform(d.begin(), d.end(), e.begin(), e.begin(), saxpy{10});
    printf("%g %g | ", (float)e[1], (float)e.back());                     // 10*10+2, 10*6+8
    thrust::sort(thrust::device, d.begin(), d.end(), thrust::greater<float>());
    h = d;
    printf("%g %g | ", h[0], h[7]);
    thrust::device_vector<int> keys(4), values(4), sums(4);
    int k[] = {2, 1, 2, 1};
    thrust::copy(k, k + 4, keys.begin());
    thrust::sequence(values.begin(), values.end());
    thrust::sort_by_key(keys.begin(), keys.end(), values.begin());        // 1 1 2 2 and 1 3 0 2
    auto ends = thrust::reduce_by_key(keys.begin(), keys.end(), values.begin(), keys.begin(), sums.begin());
    printf("%d %d %d | ", int(ends.first - keys.begin()), (int)sums[0], (int)sums[1]);
    thrust::inclusive_scan(d.begin(), d.end(), d.begin());
    printf("%g %g | ", thrust::reduce(h.begin(), h.end(), 0.0f, thrust::plus<float>()), (float)d[7]);
    printf("%g ", thrust::transform_reduce(h.begin(), h.end(), square(), 0.f, thrust::plus<float>()));
    auto first = thrust::make_zip_iterator(thrust::make_tuple(thrust::counting_iterator<int>(0), h.begin()));
    auto seen = thrust::count_if(first, first + 8, [](auto t) { return thrust::get<0>(t) > 2 && thrust::get<1>(t) > 2; });
    printf("%d\n", (int)seen);
}
"""


def test_thrust(program):
    ran = program(PROGRAM)
    assert (ran.stdout, ran.errors, ran.crash) == ("102 68 | 14 0 | 2 4 2 | 56 56 | 560 3\n", [], "")
    (error,) = program(PROGRAM, arguments=["one too many"]).errors
    assert error["kind"] == "out of bounds" and "8 elements" in error["message"]
