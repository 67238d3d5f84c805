// What a build tells Python about itself: its kernels with their parameter types, its constants, its globals.
// Included at the start of every generated source, for the CPU and for the GPU; the table at its end is generated.
#pragma once
#include <cstddef>
#include <type_traits>

#define LAPTOP_EXPORT extern "C" __attribute__((visibility("default")))

namespace laptop_entries {

struct Row {
    const char* kind;          // "kernel", "int", "bool", "float", "symbol"; "" is to be skipped; null ends the table
    const char* name;
    void* entry;               // of a kernel
    const char* (*types)();    // of a kernel's parameters, or of a symbol
    long long whole;           // an integer constant; the __launch_bounds__ of a kernel (0: none); 1: a const symbol
    double real;               // a floating constant
    void* address;             // of a symbol
    std::size_t bytes;
};

// The compiler spells the type: "... [with T = float]" or "... [T = float]".
template <class T> const char* spelled() { return __PRETTY_FUNCTION__; }

template <class T> constexpr char category() {
    return std::is_void<T>::value ? 'v' : std::is_same<T, bool>::value ? 'b' : std::is_pointer<T>::value ? 'p'
         : std::is_floating_point<T>::value ? 'f' : std::is_enum<T>::value || std::is_integral<T>::value
         ? (std::is_unsigned<T>::value ? 'u' : 'i') : 's';
}

template <class T> struct size { static constexpr std::size_t value = sizeof(T); };
template <> struct size<void> { static constexpr std::size_t value = 1; };
template <class R, class... P> struct size<R(P...)> { static constexpr std::size_t value = 1; };

// A text of bounded length, without the C library: what a kernel's library calls is the kernel's own then.
struct Text {
    char* to;
    std::size_t room, used;
    void put(char c) {
        if (used + 1 < room) to[used] = c, to[used + 1] = 0;
        ++used;
    }
    void put(const char* s) { while (*s) put(*s++); }
    void put(std::size_t number) {
        if (number >= 10) put(number / 10);
        put(static_cast<char>('0' + number % 10));
    }
};

// "category|size|const|spelled", with "*" before it for a pointer
template <class T> void describe(Text& text) {
    using pointee = typename std::remove_pointer<T>::type;
    using bare = typename std::remove_cv<pointee>::type;
    if (std::is_pointer<T>::value) text.put('*');
    text.put(category<bare>()), text.put('|'), text.put(size<bare>::value);
    text.put(std::is_const<pointee>::value ? "|1|" : "|0|"), text.put(spelled<bare>()), text.put('\n');
}

// the descriptions of types, one per line, and of a kernel's parameters
template <class... P> const char* text() {
    static char all[sizeof...(P) * 1000 + 1];
    Text made = {all, sizeof(all), 0};
    (describe<P>(made), ...);
    return made.used < sizeof(all) ? all : "";
}
template <class R, class... P> constexpr auto types(R (*)(P...)) { return &text<P...>; }

template <class V> constexpr Row constant(const char* name, V value) {
    Row r = {"", name, nullptr, nullptr, 0, 0.0, nullptr, 0};
    if constexpr (std::is_arithmetic<V>::value || (std::is_enum<V>::value && std::is_convertible<V, long long>::value)) {
        r.kind = std::is_same<V, bool>::value ? "bool" : std::is_floating_point<V>::value ? "float" : "int";
        r.whole = static_cast<long long>(value);
        r.real = static_cast<double>(value);
    }
    return r;
}
}  // namespace laptop_entries
