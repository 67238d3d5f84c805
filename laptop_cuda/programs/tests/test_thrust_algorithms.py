"""Thrust's containers and algorithms against NumPy and Python; kernels on its memory are checked."""
from itertools import accumulate, groupby

import numpy as np
import pytest

START = r"""
#include <cstdio>
#include <thrust/adjacent_difference.h>
#include <thrust/binary_search.h>
#include <thrust/complex.h>
#include <thrust/count.h>
#include <thrust/device_malloc.h>
#include <thrust/device_vector.h>
#include <thrust/execution_policy.h>
#include <thrust/host_vector.h>
#include <thrust/iterator/constant_iterator.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/discard_iterator.h>
#include <thrust/iterator/permutation_iterator.h>
#include <thrust/iterator/zip_iterator.h>
#include <thrust/random.h>
#include <thrust/merge.h>
#include <thrust/sequence.h>
#include <thrust/shuffle.h>
#include <thrust/transform_reduce.h>
#include <thrust/zip_function.h>
#include <cuda/std/functional>
using thrust::make_zip_iterator;
typedef thrust::device_vector<int> ints;
template <class I> void show(const char* name, I a, I b) {
    printf("%s", name);
    for (; a != b; ++a) printf(" %g", double(*a));
    printf("\n");
}
void show(const char* name, const ints& v) { show(name, v.begin(), v.end()); }
struct odd { __host__ __device__ bool operator()(int x) const { return x % 2; } };
struct twice { __host__ __device__ int operator()(int x) const { return 2 * x; } };
const int n = 24;
int main(int argc, char**) {
    ints x(n), y(n), k(n);
    thrust::tabulate(x.begin(), x.end(), [](int i) { return (i * 7 + 3) % 11; });
    thrust::tabulate(y.begin(), y.end(), [](int i) { return i * 5 % 13; });
    thrust::tabulate(k.begin(), k.end(), [](int i) { return i * i / 40; });
    ints r(n), s(n), a = x, b = y;
    thrust::sort(a.begin(), a.end()), thrust::sort(thrust::device, b.begin(), b.end());
    auto zipped = [](ints& p, ints& q) { return make_zip_iterator(thrust::make_tuple(p.begin(), q.begin())); };
"""
BY_KEY = r"""
    thrust::inclusive_scan_by_key(k.begin(), k.end(), x.begin(), r.begin()), show("inclusive", r);
    r = x, thrust::exclusive_scan_by_key(thrust::device, k.begin(), k.end(), r.begin(), r.begin(), 5);
    show("exclusive", r);
    thrust::exclusive_scan_by_key(k.begin(), k.end(), x.begin(), r.begin()), show("from zero", r);
    thrust::inclusive_scan_by_key(k.begin(), k.end(), zipped(x, y), zipped(r, s), thrust::equal_to<int>(),
                                  thrust::minimum<thrust::tuple<int, int>>());
    show("least x", r), show("its y", s);
    auto ends = thrust::unique_by_key_copy(k.begin(), k.end(), thrust::make_counting_iterator(0),
                                           thrust::make_discard_iterator(), r.begin());
    show("starts", r.begin(), ends.second);
    r = k, s = x;
    show("firsts", s.begin(), thrust::unique_by_key(r.begin(), r.end(), s.begin()).second);
    auto most = thrust::reduce_by_key(k.begin(), k.end(), x.begin(), r.begin(), s.begin(), thrust::equal_to<int>(),
                                      thrust::maximum<int>());
    show("most", s.begin(), most.second);
    r = x, s = y, thrust::sort(zipped(r, s), zipped(r, s) + n), show("zipped x", r), show("zipped y", s);
    r = x, s = y, thrust::reverse(zipped(r, s), zipped(r, s) + n), show("reversed", s);
    thrust::host_vector<int> h(n);
    for (int i = 0; i < n; ++i) h[i] = x[i];
    r = h, thrust::sequence(s.begin(), s.end(), 1);
    thrust::sort_by_key(s.begin(), s.end(), r.begin(), thrust::greater<int>()), show("falling", r);
    printf("doubles %d\n", thrust::transform_reduce(h.begin(), h.end(), twice(), 0, thrust::plus<int>()));
    auto first = make_zip_iterator(thrust::make_tuple(thrust::counting_iterator<int>(0), h.begin()));
    auto late = [](auto t) { return thrust::get<0>(t) > 9 && thrust::get<1>(t) > 2; };
    printf("late %d\n", int(thrust::count_if(first, first + n, late)));
    const int* raw = thrust::raw_pointer_cast(x.data());
    add<<<1, 32>>>(thrust::raw_pointer_cast(r.data()) + (argc > 1), raw, raw, raw), show("added", r);
"""
STENCILS = r"""
    r = x, show("kept", r.begin(), thrust::remove_if(r.begin(), r.end(), y.begin(), odd()));
    show("even", r.begin(), thrust::remove_copy_if(thrust::host, x.begin(), x.end(), r.begin(), odd()));
    r = x, s = y;
    auto left = thrust::remove_if(zipped(r, s), zipped(r, s) + n, [](auto t) { return thrust::get<0>(t) > 4; });
    show("zipped kept", s.begin(), thrust::get<1>(left.get_iterator_tuple()));
    r = x, thrust::partition(r.begin(), r.end(), y.begin(), odd()), show("parted by y", r);
    r = x, thrust::stable_partition(thrust::device, r.begin(), r.end(), odd()), show("parted", r);
    auto two = thrust::partition_copy(x.begin(), x.end(), r.begin(), s.begin(), odd());
    show("odds", r.begin(), two.first), show("evens", s.begin(), two.second);
    thrust::fill(r.begin(), r.end(), -1);
    thrust::transform_if(x.begin(), x.end(), y.begin(), r.begin(), twice(), odd()), show("some", r);
    thrust::replace_if(r.begin(), r.end(), x.begin(), odd(), 100), show("replaced", r);
    ints map(n);
    thrust::tabulate(map.begin(), map.end(), [](int i) { return i * 5 % n; });
    thrust::gather(map.begin(), map.end(), x.begin(), r.begin()), show("gathered", r);
    thrust::scatter(x.begin(), x.end(), map.begin(), r.begin()), show("scattered", r);
    thrust::fill(r.begin(), r.end(), -1);
    thrust::gather_if(map.begin(), map.end(), y.begin(), x.begin(), r.begin(), odd());
    show("some gathered", r), thrust::fill(r.begin(), r.end(), -1);
    thrust::scatter_if(x.begin(), x.end(), map.begin(), y.begin(), r.begin(), odd()), show("some scattered", r);
    r = x, s = y, thrust::swap_ranges(r.begin(), r.begin() + 9, s.begin()), show("swapped", r);
"""
SEARCHES = r"""
    ints out(2 * n);
    show("merge", out.begin(), thrust::merge(a.begin(), a.end(), b.begin(), b.end(), out.begin()));
    a.erase(thrust::unique(a.begin(), a.end()), a.end()), b.erase(thrust::unique(b.begin(), b.end()), b.end());
    thrust::lower_bound(b.begin(), b.end(), x.begin(), x.end(), r.begin()), show("lower", r);
    thrust::upper_bound(b.begin(), b.end(), x.begin(), x.end(), r.begin(), thrust::less<int>()), show("upper", r);
    thrust::binary_search(a.begin(), a.end(), y.begin(), y.end(), r.begin()), show("found", r);
    auto range = thrust::equal_range(k.begin(), k.end(), 3);
    printf("range %d %d\n", int(range.first - k.begin()), int(range.second - k.begin()));
    auto ends = thrust::minmax_element(x.begin(), x.end());
    printf("ends %d %d\n", int(ends.first - x.begin()), int(ends.second - x.begin()));
    r = x, r[9] += 1;
    printf("mismatch %d %d\n", int(thrust::mismatch(x.begin(), x.end(), r.begin()).first - x.begin()), x == r);
    printf("unique %d\n", int(thrust::unique_count(k.begin(), k.end())));
    printf("inner %d\n", thrust::inner_product(x.begin(), x.end(), y.begin(), 100));
    thrust::adjacent_difference(x.begin(), x.end(), r.begin()), show("steps", r);
    thrust::inclusive_scan(x.begin(), x.end(), r.begin(), 7, thrust::maximum<int>());
    show("highest", r);
    thrust::transform_exclusive_scan(x.begin(), x.end(), r.begin(), twice(), 1, thrust::plus<int>());
    show("doubles", r);
    r = x, r.insert(r.begin() + 2, y.begin(), y.begin() + 3), show("inserted", r);
    r = x, thrust::shuffle(r.begin(), r.end(), thrust::default_random_engine(3));
    printf("moved %d\n", r != x), thrust::sort(r.begin(), r.end()), show("shuffled", r);
"""
ITERATORS = r"""
    thrust::device_vector<float> f(n);
    thrust::transform(x.begin(), x.end(), thrust::make_constant_iterator(4), f.begin(), thrust::divides<float>());
    show("divided", f.begin(), f.end());
    printf("product %d\n", thrust::reduce(a.begin() + 5, a.begin() + 9, 1, thrust::multiplies<>()));
    thrust::transform(zipped(x, y), zipped(x, y) + n, r.begin(), thrust::make_zip_function(thrust::minus<int>()));
    show("minus", r);
    show("true", r.begin(), thrust::copy_if(x.begin(), x.end(), r.begin(), cuda::std::identity()));
    thrust::complex<float> z(3, 4);
    printf("complex %g %g %g\n", thrust::abs(z), thrust::conj(z).imag(), thrust::norm(z * z));
    try {
        throw thrust::system_error(cudaErrorMemoryAllocation, thrust::cuda_category(), "all of it");
    } catch (thrust::system_error& e) {
        printf("error %d\n", e.code().value());
    }
    r = x, thrust::generate_n(thrust::seq, r.begin(), 3, [] { return 9; }), show("nines", r);
    // What algorithms write to new memory, through whatever iterator, is initialised to the kernel that reads it.
    auto p = thrust::device_malloc<int>(n), q = thrust::device_malloc<int>(n), t = thrust::device_malloc<int>(n);
    thrust::copy(zipped(x, y), zipped(x, y) + n, make_zip_iterator(p, q));
    auto u = thrust::device_malloc<int>(n);
    int* raw = u.get();
    thrust::for_each(thrust::device, thrust::make_counting_iterator(0), thrust::make_counting_iterator(n),
                     [=] __device__(int i) { raw[i] = 100 * i; });
    thrust::transform(x.begin(), x.end() - 1, t, twice());
    if (full) {
        auto last = thrust::make_permutation_iterator(t, thrust::make_constant_iterator(n - 1));
        thrust::copy(y.begin() + 1, y.begin() + 2, last);
    }
    add<<<1, 32>>>(p.get(), q.get(), t.get(), raw);
    cudaDeviceSynchronize();
    show("added", p, p + n);
"""
KERNEL = r"""
__global__ void add(int* p, const int* q, const int* t, const int* u) {
    int i = threadIdx.x;
    if (i < 24) p[i] += q[i] + t[i] + u[i];
}
"""
X = (np.arange(24) * 7 + 3) % 11
Y = np.arange(24) * 5 % 13
K = np.arange(24) ** 2 // 40
MAP = np.arange(24) * 5 % 24
A, B = sorted(X.tolist()), sorted(Y.tolist())


def whole(body: str) -> str:
    return START.replace("int main", KERNEL + "int main") + body + "}\n"


def results(program, body: str) -> dict[str, list[float]]:
    """The numbers that a program prints, by their names."""
    ran = program(whole(body))
    assert (ran.errors, ran.crash, ran.status) == ([], "", 0), ran.stderr
    rows = {}
    for line in ran.stdout.splitlines():
        words = line.split()
        first = next(i for i, word in enumerate(words) if word.lstrip("-")[:1].isdigit())
        rows[" ".join(words[:first])] = [float(word) for word in words[first:]]
    return rows


def by_key(function) -> list:
    return [v for _, run_of in groupby(range(24), key=lambda i: K[i]) for v in function([*run_of])]


@pytest.mark.slow
def test_by_key(program):
    least = by_key(lambda at: accumulate([(X[i], Y[i]) for i in at], min))
    pairs = sorted(zip(X, Y))
    assert results(program, BY_KEY) == {
        "inclusive": by_key(lambda at: np.cumsum(X[at])),
        "exclusive": by_key(lambda at: 5 + np.cumsum(X[at]) - X[at]),
        "from zero": by_key(lambda at: np.cumsum(X[at]) - X[at]), "least x": [x for x, _ in least],
        "its y": [y for _, y in least], "starts": by_key(lambda at: at[:1]),
        "firsts": by_key(lambda at: X[at[:1]]), "most": by_key(lambda at: [X[at].max()]),
        "zipped x": [x for x, _ in pairs], "zipped y": [y for _, y in pairs], "reversed": [*Y[::-1]],
        "falling": [*X[::-1]], "doubles": [2 * X.sum()], "late": [(X[10:] > 2).sum()],
        "added": [*X[::-1] + 3 * X]}
    (error,) = program(whole(BY_KEY), arguments=["one too far"]).errors
    assert error["kind"] == "out of bounds" and "24 elements" in error["message"]


@pytest.mark.slow
def test_stencils(program):
    odd_x, odd_y = X % 2 == 1, Y % 2 == 1
    some = np.where(odd_y, 2 * X, -1)
    scattered, part = np.empty(24), np.full(24, -1)
    scattered[MAP], part[MAP[odd_y]] = X, X[odd_y]
    assert results(program, STENCILS) == {name: [*v] for name, v in {
        "kept": X[~odd_y], "even": X[~odd_x], "zipped kept": Y[X <= 4],
        "parted by y": [*X[odd_y], *X[~odd_y]], "parted": [*X[odd_x], *X[~odd_x]],
        "odds": X[odd_x], "evens": X[~odd_x], "some": some, "replaced": np.where(odd_x, 100, some),
        "gathered": X[MAP], "scattered": scattered, "some gathered": np.where(odd_y, X[MAP], -1),
        "some scattered": part, "swapped": [*Y[:9], *X[9:]]}.items()}


@pytest.mark.slow
def test_merges_and_searches(program):
    distinct = np.unique(B)
    doubles = np.cumsum(2 * X) - 2 * X + 1
    assert results(program, SEARCHES) == {name: [*v] for name, v in {
        "merge": sorted(A + B), "lower": np.searchsorted(distinct, X), "upper": np.searchsorted(distinct, X, "right"),
        "found": np.isin(Y, A), "range": (np.flatnonzero(K == 3)[0], np.flatnonzero(K == 3)[-1] + 1),
        "ends": (X.argmin(), X.argmax()), "mismatch": (9, 0), "unique": [len({*K})], "inner": [100 + X @ Y],
        "steps": np.diff(X, prepend=0), "highest": np.maximum.accumulate(np.maximum(X, 7)), "doubles": doubles,
        "inserted": [*X[:2], *Y[:3], *X[2:]], "moved": [1], "shuffled": A}.items()}


@pytest.mark.slow
def test_iterators_and_what_they_write(program):
    body = ITERATORS.replace("full", "true")
    added = X + Y + 2 * X + 100 * np.arange(24)
    added[-1] += Y[1] - 2 * X[-1]
    assert (results(program, body)
            == {name: [*v] for name, v in {"divided": X / 4, "product": [np.prod(A[5:9])], "minus": X - Y,
                                           "true": X[X != 0], "complex": (5, -4, 625), "error": [2],
                                           "nines": [9, 9, 9, *X[3:]], "added": added}.items()})
    (error,) = program(whole(ITERATORS.replace("full", "false"))).errors
    assert error["kind"] == "uninitialized" and "[23]" in error["message"]
