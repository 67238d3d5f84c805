// Runs kernels without Python: the same launches on x86-64 and, under qemu, on arm64 must print the same lines.
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include <vector>

#include "engine.h"

struct Array { const char* name; std::vector<float> values; };

static void launch(void* library, const char* path, const char* entry, unsigned grid, unsigned block, int mode, int order,
                   std::vector<Array> arrays, int n) {
    std::vector<laptop_storage> storages;
    std::vector<laptop_array> described;
    std::vector<void*> pointers(arrays.size()), args;
    std::vector<int32_t> which;
    for (size_t i = 0; i < arrays.size(); ++i) {
        laptop_storage storage = {};
        storage.host = arrays[i].values.data(), storage.bytes = arrays[i].values.size() * 4;
        storages.push_back(storage);
        laptop_array array = {};
        array.name = arrays[i].name, array.dtype = "float32", array.itemsize = 4, array.storage = int(i);
        array.bytes = storage.bytes, array.ndim = 1, array.shape[0] = int64_t(arrays[i].values.size());
        described.push_back(array);
        pointers[i] = storage.host;
    }
    for (size_t i = 0; i < arrays.size(); ++i) args.push_back(&pointers[i]), which.push_back(int(i));
    args.push_back(&n), which.push_back(-1);

    laptop_launch l = {};
    l.entry = (void (*)(void**))dlsym(library, entry);
    l.kernel = entry, l.library = path;
    l.grid[0] = grid, l.grid[1] = l.grid[2] = 1, l.block[0] = block, l.block[1] = l.block[2] = 1;
    l.args = args.data(), l.n_args = int(args.size()), l.arg_array = which.data();
    l.arrays = described.data(), l.n_arrays = int(described.size());
    l.storages = storages.data(), l.n_storages = int(storages.size());
    l.mode = mode, l.order = order, l.seed = 3, l.step_limit = 10000000;
    laptop_result* result = laptop_run(&l);
    printf("%s mode %d order %d: ", entry, mode, order);
    if (result->error.kind) {
        const laptop_error& e = result->error;
        printf("%s, block %u, thread %u, offset %lld\n", e.kind, e.who.block[0], e.who.thread[0], (long long)e.offset);
    } else {
        uint64_t requests[LAPTOP_CLASSES] = {}, sectors[LAPTOP_CLASSES] = {}, excess = 0;
        for (uint64_t s = 0; s < result->n_sites; ++s) {
            requests[result->sites[s].operation] += result->sites[s].requests;
            sectors[result->sites[s].operation] += result->sites[s].sectors;
            excess += result->sites[s].excess;
        }
        double sum = 0;
        for (float v : arrays.back().values) sum = sum * 1.001 + v;
        printf("result %.6f", sum);
        for (int c = 0; c < LAPTOP_BARRIER; ++c)
            printf(" %llu/%llu", (unsigned long long)requests[c], (unsigned long long)sectors[c]);
        printf(" excess %llu barriers %llu\n", (unsigned long long)excess, (unsigned long long)result->barriers);
    }
    laptop_free(result);
}

int main(int, char** argv) {
    std::vector<float> x(1024), zeros(1024);
    for (int i = 0; i < 1024; ++i) x[i] = float(i % 37) / 8 - 2;
    for (int traced = 0; traced < 2; ++traced) {
        const char* path = argv[1 + traced];
        void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (!library) return fprintf(stderr, "%s\n", dlerror()), 1;
        for (int order = 0; order < 3; ++order)
            for (int mode = traced ? 1 : 0; mode <= (traced ? 3 : 0); ++mode) {
                launch(library, path, "laptop_entry_0", 2, 128, mode, order, {{"x", x}, {"y", zeros}}, 1000);
                launch(library, path, "laptop_entry_1", 1, 64, mode, order, {{"x", x}, {"y", zeros}}, 64);
                if (mode & LAPTOP_SANITIZE) {
                    launch(library, path, "laptop_entry_2", 1, 64, mode, order, {{"x", x}, {"y", zeros}}, 64);
                    launch(library, path, "laptop_entry_3", 1, 64, mode, order, {{"x", x}, {"y", zeros}}, 2000);
                }
            }
    }
    return 0;
}
