// The comparisons that CUDA sample programs expect of a header of this name, written anew.
#pragma once
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "helper_string.h"
#include "helper_timer.h"

// Relative error in the L2 norm.
inline bool sdkCompareL2fe(const float* reference, const float* data, const unsigned n, const float epsilon) {
    double error = 0, norm = 0;
    for (unsigned i = 0; i < n; ++i) {
        double d = (double)reference[i] - data[i];
        error += d * d, norm += (double)reference[i] * reference[i];
    }
    return norm > 1e-14 && std::sqrt(error / norm) < epsilon;
}
template <class T, class S>
inline bool compareData(const T* reference, const T* data, const unsigned n, const S epsilon, const float threshold) {
    unsigned wrong = 0;
    for (unsigned i = 0; i < n; ++i) {
        double d = (double)reference[i] - (double)data[i];
        wrong += !(d <= (double)epsilon && d >= -(double)epsilon);
    }
    return threshold == 0.f ? wrong == 0 : wrong < n * threshold;
}
template <class T, class S>
inline bool compareDataAsFloatThreshold(const T* reference, const T* data, const unsigned n, const S epsilon,
                                        const float threshold) {
    return compareData(reference, data, n, epsilon, threshold);
}
// Numbers as text, one per line.
template <class T>
inline bool sdkWriteFile(const char* name, const T* data, unsigned n, const T, bool, bool append = false) {
    std::ofstream file(name, append ? std::ios::app : std::ios::trunc);
    for (unsigned i = 0; i < n; ++i) file << data[i] << "\n";
    return bool(file);
}
