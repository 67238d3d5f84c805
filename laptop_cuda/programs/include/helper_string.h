// The command-line names that CUDA sample programs expect of a header of this name, written anew.
#pragma once
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>

#ifndef EXIT_WAIVED
#define EXIT_WAIVED 2
#endif
#ifndef STRNCASECMP
#define STRCASECMP strcasecmp
#define STRNCASECMP strncasecmp
#define STRCPY(to, size, from) strncpy(to, from, size)
#define FOPEN(file, name, mode) (file = fopen(name, mode))
#define FOPEN_FAIL(result) (result == NULL)
#define SSCANF sscanf
#define SPRINTF sprintf
#endif

namespace laptop {
// The text after "name=" of the argument -name or --name; null if there is none, "" if it has no value.
inline const char* command_line(int n, const char** words, const char* name) {
    for (int i = 1; i < n; ++i) {
        const char* word = words[i];
        while (*word == '-') ++word;
        size_t length = ::strlen(name);
        if (word != words[i] && ::strncmp(word, name, length) == 0 && (word[length] == 0 || word[length] == '='))
            return word[length] ? word + length + 1 : word + length;
    }
    return nullptr;
}
}  // namespace laptop
inline bool checkCmdLineFlag(const int n, const char** words, const char* name) {
    return laptop::command_line(n, words, name) != nullptr;
}
inline int getCmdLineArgumentInt(const int n, const char** words, const char* name) {
    const char* value = laptop::command_line(n, words, name);
    return value ? ::atoi(value) : 0;
}
inline float getCmdLineArgumentFloat(const int n, const char** words, const char* name) {
    const char* value = laptop::command_line(n, words, name);
    return value ? (float)::atof(value) : 0.f;
}
inline bool getCmdLineArgumentString(const int n, const char** words, const char* name, char** to) {
    const char* value = laptop::command_line(n, words, name);
    *to = (char*)value;
    return value != nullptr;
}
template <class T>
inline bool getCmdLineArgumentValue(const int n, const char** words, const char* name, T* to) {
    const char* value = laptop::command_line(n, words, name);
    if (value) std::istringstream(value) >> *to;
    return value != nullptr;
}
// A data file beside the program, or in its data folder.
inline char* sdkFindFilePath(const char* name, const char*) {
    for (const char* folder : {"./", "./data/", "../", "../data/"}) {
        std::string path = std::string(folder) + name;
        if (FILE* file = ::fopen(path.c_str(), "rb")) {
            ::fclose(file);
            return ::strdup(path.c_str());
        }
    }
    return nullptr;
}
