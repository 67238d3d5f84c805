// Thrust's containers and pointers. Its algorithms run in host code here: right results, neither counted nor checked.
#pragma once
#include <algorithm>
#include <cstring>
#include <iterator>
#include <vector>

#include "laptop_functions.h"

namespace thrust {

struct laptop_policy {
    template <class S> laptop_policy on(S) const { return {}; }
    template <class A> const laptop_policy& operator()(A&) const { return *this; }
};
template <class> struct host_execution_policy : laptop_policy {};
template <class> struct device_execution_policy : laptop_policy {};
struct any_system_tag {};
struct host_system_tag : any_system_tag {};
struct device_system_tag : any_system_tag {};
static constexpr laptop_policy host, device, seq;
namespace cuda { static constexpr laptop_policy par, par_nosync; }
namespace omp { static constexpr laptop_policy par; }

// What an iterator can do that moves by `laptop_move(n)` and knows by `laptop_from` how far it is from another.
template <class Self> struct laptop_walk {
    Self& operator+=(ptrdiff_t n) { return self().laptop_move(n), self(); }
    Self& operator-=(ptrdiff_t n) { return self().laptop_move(-n), self(); }
    Self& operator++() { return *this += 1; }
    Self& operator--() { return *this -= 1; }
    Self operator++(int) { Self old = self(); return *this += 1, old; }
    Self operator--(int) { Self old = self(); return *this -= 1, old; }
    friend Self operator+(Self a, ptrdiff_t n) { return a += n; }
    friend Self operator+(ptrdiff_t n, Self a) { return a += n; }
    friend Self operator-(Self a, ptrdiff_t n) { return a -= n; }
    friend ptrdiff_t operator-(const Self& a, const Self& b) { return a.laptop_from(b); }
    friend bool operator==(const Self& a, const Self& b) { return a.laptop_from(b) == 0; }
    friend bool operator!=(const Self& a, const Self& b) { return a.laptop_from(b) != 0; }
    friend bool operator<(const Self& a, const Self& b) { return a.laptop_from(b) < 0; }
    friend bool operator>(const Self& a, const Self& b) { return a.laptop_from(b) > 0; }
    friend bool operator<=(const Self& a, const Self& b) { return a.laptop_from(b) <= 0; }
    friend bool operator>=(const Self& a, const Self& b) { return a.laptop_from(b) >= 0; }

private:
    Self& self() { return *static_cast<Self*>(this); }
};

template <class T> class device_ptr : public laptop_walk<device_ptr<T>> {
public:
    typedef std::random_access_iterator_tag iterator_category;
    typedef std::remove_cv_t<T> value_type;
    typedef ptrdiff_t difference_type;
    typedef T* pointer;
    typedef std::add_lvalue_reference_t<T> reference;
    device_ptr() = default;
    device_ptr(std::nullptr_t) {}
    explicit device_ptr(T* p) : p(p) { laptop::open_to_host(p); }
    template <class U, class = std::enable_if_t<std::is_convertible<U*, T*>::value>>
    device_ptr(const device_ptr<U>& other) : p(other.get()) {}
    T* get() const { return p; }
    reference operator*() const { return *p; }
    T* operator->() const { return p; }
    reference operator[](ptrdiff_t i) const { return p[i]; }
    explicit operator bool() const { return p; }
    void laptop_move(ptrdiff_t n) { p += n; }
    ptrdiff_t laptop_from(const device_ptr& other) const { return p - other.p; }

private:
    T* p = nullptr;
};
template <class T> using device_reference = T&;
template <class T> T* raw_pointer_cast(T* p) { return p; }
template <class T> T* raw_pointer_cast(const device_ptr<T>& p) { return p.get(); }
template <class T> T& raw_reference_cast(T& x) { return x; }
template <class T> device_ptr<T> device_pointer_cast(T* p) { return device_ptr<T>(p); }
template <class T> device_ptr<T> device_pointer_cast(device_ptr<T> p) { return p; }
template <class T> device_ptr<T> device_malloc(size_t n) {
    void* p = nullptr;
    laptop::allocate("device_malloc", &p, n * sizeof(T), sizeof(T), false);
    return device_ptr<T>((T*)p);
}
inline device_ptr<void> device_malloc(size_t bytes) { return device_malloc<char>(bytes); }
template <class T> void device_free(device_ptr<T> p) { cudaFree((void*)p.get()); }
template <class T> void device_delete(device_ptr<T> p) { cudaFree((void*)p.get()); }

// What an algorithm of the host wrote to device memory is initialised.
template <class I> void laptop_wrote(I, I) {}
template <class T> void laptop_wrote(T* first, T* last) {
    if (last > first) laptop::host_wrote((void*)first, (last - first) * sizeof(T));
}
template <class T> void laptop_wrote(device_ptr<T> first, device_ptr<T> last) { laptop_wrote(first.get(), last.get()); }

// A function may write through the pointers that it holds: what follows them in their allocations is initialised.
template <class F> void laptop_wrote_through(const F& f) {
    auto on_device = [](char* p, size_t n) { return laptop::place_of(p, n) == laptop::Place::DEVICE; };
    for (size_t at = 0; at + sizeof(char*) <= sizeof f; at += sizeof(char*)) {
        char* p;
        std::memcpy(&p, (const char*)&f + at, sizeof p);
        if (!on_device(p, 1)) continue;
        size_t n = 1;
        for (size_t more = size_t(1) << 40; more; more /= 2) if (on_device(p, n + more)) n += more;
        laptop::host_wrote(p, n);
    }
}

template <class T> class device_vector;
template <class T> class host_vector : public std::vector<T> {
public:
    using std::vector<T>::vector;
    host_vector() = default;
    host_vector(const std::vector<T>& v) : std::vector<T>(v) {}
    host_vector(const device_vector<T>& v) : std::vector<T>(v.begin(), v.end()) {}
    host_vector& operator=(const device_vector<T>& v) { return this->assign(v.begin(), v.end()), *this; }
};

template <class T> class device_vector {
public:
    typedef T value_type;
    typedef device_ptr<T> iterator, pointer;
    typedef device_ptr<const T> const_iterator;
    typedef T& reference;
    typedef size_t size_type;
    device_vector() = default;
    explicit device_vector(size_t n) { resize(n); }
    device_vector(size_t n, const T& value) { resize(n, value); }
    template <class I, class = typename std::iterator_traits<I>::iterator_category>
    device_vector(I first, I last) { assign(first, last); }
    device_vector(std::initializer_list<T> list) { assign(list.begin(), list.end()); }
    device_vector(const device_vector& v) { assign(v.begin(), v.end()); }
    device_vector(device_vector&& v) { swap(v); }
    device_vector(const std::vector<T>& v) { assign(v.begin(), v.end()); }
    ~device_vector() { if (p) cudaFree(p); }
    device_vector& operator=(const device_vector& v) { return this == &v ? *this : (assign(v.begin(), v.end()), *this); }
    device_vector& operator=(device_vector&& v) { return swap(v), *this; }
    device_vector& operator=(const std::vector<T>& v) { return assign(v.begin(), v.end()), *this; }

    template <class I> void assign(I first, I last) {
        laptop::AsDevice as;                             // of raw pointers a cudaMemcpy
        std::vector<T> kept(first, last);                // the source may be this vector
        resize(kept.size());
        std::copy(kept.begin(), kept.end(), p);
    }
    void assign(size_t n, const T& value) { clear(), resize(n, value); }
    void reserve(size_t n) {
        if (n <= room) return;
        device_ptr<T> more = device_malloc<T>(n);
        std::uninitialized_copy(p, p + count, more.get());
        if (p) cudaFree(p);
        p = more.get(), room = n;
        laptop::host_wrote(p, room * sizeof(T));
    }
    void resize(size_t n, const T& value = T()) {
        if (n > room) reserve(n > 2 * room ? n : 2 * room);
        if (n > count) std::uninitialized_fill(p + count, p + n, value);
        count = n;
    }
    void push_back(const T& value) { resize(count + 1, value); }
    void pop_back() { --count; }
    void clear() { count = 0; }
    void shrink_to_fit() {}
    template <class I, class = typename std::iterator_traits<I>::iterator_category>
    iterator insert(iterator at, I first, I last) {
        std::vector<T> kept(begin(), end());
        ptrdiff_t position = at - begin();
        kept.insert(kept.begin() + position, first, last);
        assign(kept.begin(), kept.end());
        return begin() + position;
    }
    iterator insert(iterator at, const T& value) { return insert(at, &value, &value + 1); }
    iterator erase(iterator at) { return erase(at, at + 1); }
    iterator erase(iterator first, iterator last) {
        std::copy(last.get(), p + count, first.get());
        count -= last - first;
        return first;
    }
    void swap(device_vector& v) { std::swap(p, v.p), std::swap(count, v.count), std::swap(room, v.room); }
    size_t size() const { return count; }
    size_t capacity() const { return room; }
    bool empty() const { return !count; }
    iterator begin() { return iterator(p); }
    iterator end() { return iterator(p + count); }
    const_iterator begin() const { return const_iterator(p); }
    const_iterator end() const { return const_iterator(p + count); }
    const_iterator cbegin() const { return begin(); }
    const_iterator cend() const { return end(); }
    auto rbegin() const { return std::make_reverse_iterator(iterator(p + count)); }
    auto rend() const { return std::make_reverse_iterator(iterator(p)); }
    pointer data() { return pointer(p); }
    const_iterator data() const { return const_iterator(p); }
    T& operator[](size_t i) const { return p[i]; }
    T& front() const { return p[0]; }
    T& back() const { return p[count - 1]; }
    friend bool operator==(const device_vector& a, const device_vector& b) {
        return a.count == b.count && std::equal(a.p, a.p + a.count, b.p);
    }
    friend bool operator!=(const device_vector& a, const device_vector& b) { return !(a == b); }

private:
    T* p = nullptr;
    size_t count = 0, room = 0;
};
template <class T> using universal_vector = device_vector<T>;
}  // namespace thrust
