"""Ways to show a reader of C++ other code than the compiler sees. `GET` loads without a hook; each text has it
where somebody who reads comments, texts or broken lines in another way than g++ does would not find it."""
from .cheats import HEAD, SUM

GET = '__attribute__((no_sanitize("thread"))) __device__ float get(const float* p) { return *p; }'
KERNEL = HEAD + "if (t == 0) { " + SUM.format("get(x + (size_t)blockIdx.x * n + i)") + " }\n}\n"

HIDDEN = {
    "between two texts that look like a comment": f'__device__ const char* a = "/*"; {GET} // */\n',
    "behind a text that looks like a comment": f'__device__ const char* a = "//"; {GET}\n',
    "behind a raw string": f'__device__ const char* a = R"(/*)"; {GET} // */\n',
    "behind a raw string with a quote in it": f'__device__ const char* a = R"x("/*)x"; {GET} // */\n',
    "behind a letter": f"__device__ int a = '/*'; {GET} // */\n",
    "behind an escaped quote": f'__device__ const char* a = "\\"/*"; {GET} // */\n',
    "in a word that is broken by a form feed": GET.replace("attri", "attri\\\f\n") + "\n",
    "in a word that is broken by a vertical tab": GET.replace("attri", "attri\\\v\n") + "\n",
    "in a word that is broken by a carriage return": GET.replace("attri", "attri\\\r") + "\n",
    "behind a comment that a form feed breaks": f"// \\\f\n/*\n{GET}\n// */\n",
    "behind an apostrophe in what is left out": f"#if 0\n' /*\n#endif\n{GET}\n// */\n",
    "behind a number with an apostrophe": f"#define A 1' \"'/* \"\n{GET}\n// */\n",
    "in a word spelled by numbers": GET.replace("__attr", "\\u005f\\u005fattr") + "\n",
    "in a file that is said to be the system's": f'# 1 "/usr/include/math.h" 1 3\n{GET}\n',
    "behind a broken end of a comment": f"/* *\\\n/ {GET} /* */\n",
    "behind a broken beginning of a comment": f"/\\\n* */ {GET}\n",
}
