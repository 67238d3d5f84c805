// The variables of a kernel's library, as its table of symbols has them.
#include <cxxabi.h>
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "runtime.h"

namespace laptop {

// As C++ spells T::T(const T&), T::T(T&&) and the two of operator=: "...C1ERKS0_", "...aSEOS_".
static bool is_copier(const std::string& name) {
    size_t last = name.size() - 1, at = name.rfind('S');
    if (name.size() < 8 || name[last] != '_' || at == std::string::npos || at < 5) return false;
    for (size_t i = at + 1; i < last; ++i) {
        if (!isalnum(name[i])) return false;
    }
    size_t kind = name.compare(at - 2, 2, "RK") == 0 ? at - 2 : name[at - 1] == 'O' ? at - 1 : 0;
    if (kind < 4 || name[kind - 1] != 'E') return false;
    std::string what = name.substr(kind - 3, 2);
    return what == "C1" || what == "C2" || what == "aS";
}

static void read_image(const char* data, size_t size) {
#if !defined(__APPLE__)
    const Elf64_Ehdr* elf = (const Elf64_Ehdr*)data;
    if (size < sizeof *elf || memcmp(elf->e_ident, ELFMAG, SELFMAG) != 0) return;
    const Elf64_Phdr* segments = (const Elf64_Phdr*)(data + elf->e_phoff);
    for (int i = 0; i < elf->e_phnum; ++i) {
        if (segments[i].p_type != PT_LOAD) continue;
        run->image_high = std::max(run->image_high, run->code + segments[i].p_vaddr + segments[i].p_memsz);
    }
    const Elf64_Shdr* sections = (const Elf64_Shdr*)(data + elf->e_shoff);
    for (int i = 0; i < elf->e_shnum; ++i) {
        if (sections[i].sh_type != SHT_SYMTAB) continue;
        const Elf64_Sym* symbols = (const Elf64_Sym*)(data + sections[i].sh_offset);
        const char* names = data + sections[sections[i].sh_link].sh_offset;
        for (size_t k = 0; k < sections[i].sh_size / sizeof *symbols; ++k) {
            const Elf64_Sym& s = symbols[k];
            if (ELF64_ST_TYPE(s.st_info) == STT_FUNC && s.st_size && is_copier(names + s.st_name)) {
                run->copiers.push_back({run->code + s.st_value, run->code + s.st_value + s.st_size});
            }
            if (ELF64_ST_TYPE(s.st_info) != STT_OBJECT || s.st_size == 0 || s.st_shndx >= elf->e_shnum) continue;
            Symbol symbol = {};
            int status;
            char* plain = abi::__cxa_demangle(names + s.st_name, nullptr, nullptr, &status);
            symbol.name = status == 0 ? plain : names + s.st_name;
            free(plain);
            symbol.writable = sections[s.st_shndx].sh_flags & SHF_WRITE;
            symbol.space = LAPTOP_IN_MODULE;
            symbol.low = run->code + s.st_value;
            symbol.bytes = s.st_size;
            symbol.constant = !symbol.writable || ELF64_ST_VISIBILITY(s.st_other) == STV_PROTECTED;
            run->symbols.push_back(symbol);
        }
    }
    std::sort(run->copiers.begin(), run->copiers.end());
    std::vector<Code> order;     // sorted like the copiers: a sort of symbols takes the compiler a tenth of a second
    for (size_t i = 0; i < run->symbols.size(); ++i) order.push_back({run->symbols[i].low, i});
    std::sort(order.begin(), order.end());
    std::vector<Symbol> sorted;
    for (const Code& o : order) sorted.push_back(run->symbols[o.second]);
    run->symbols.swap(sorted);
#endif
}

static void read_library(const char* name) {
    int file = open(name, O_RDONLY);
    struct stat st;
    if (file < 0) return;
    if (fstat(file, &st) == 0 && st.st_size > 0) {
        void* data = mmap(nullptr, st.st_size, PROT_READ, MAP_PRIVATE, file, 0);
        if (data != MAP_FAILED) {
            run->image_high = 0;
            read_image((const char*)data, st.st_size);
            munmap(data, st.st_size);
        }
    }
    close(file);
}

void read_symbols() {
    if (!run->symbols.empty()) return;
    Dl_info info;
    if (!dladdr((void*)run->launch->entry, &info)) return;
    run->code = run->image_low = (uintptr_t)info.dli_fbase;
    run->image_high = run->code + (16 << 20);
    if (run->traced) read_library(info.dli_fname);
    run->code_high = run->image_high;
}
}  // namespace laptop
