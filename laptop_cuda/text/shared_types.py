"""The element types of shared arrays, as a source declares them."""
import re

C_TYPES = {"float": "float32", "double": "float64", "half": "float16", "__half": "float16",
           "__nv_bfloat16": "bfloat16", "int": "int32", "unsigned": "uint32", "unsigned int": "uint32",
           "long": "int64", "unsigned long": "uint64", "long long": "int64", "size_t": "uint64",
           "unsigned long long": "uint64", "short": "int16", "unsigned short": "uint16", "char": "int8",
           "signed char": "int8", "unsigned char": "uint8", "bool": "bool",
           "int8_t": "int8", "uint8_t": "uint8", "int16_t": "int16", "uint16_t": "uint16",
           "int32_t": "int32", "uint32_t": "uint32", "int64_t": "int64", "uint64_t": "uint64",
           **{f"{c}{n}": t for c, t in (("float", "float32"), ("double", "float64"), ("int", "int32"),
                                        ("uint", "uint32")) for n in (2, 3, 4)},
           "half2": "float16", "__half2": "float16", "__nv_bfloat162": "bfloat16"}


def declared(name: str, texts) -> str:
    """Of one array; "" where it is not one of C's or CUDA's own."""
    at = re.compile(rf"__shared__\s+(?:__align__\s*\(\d+\)\s*|alignas\s*\(\d+\)\s*)?"
                    rf"([\w: ]+?)\s+(?:\w+\s*(?:\[[^;]*?\])+\s*,\s*)*{re.escape(name)}\s*[\[;]")
    spelled = (found[1].split("::")[-1].strip() for text in texts if (found := at.search(text)))
    return next((C_TYPES[name] for name in spelled if name in C_TYPES), "")


def all_declared(texts: list[str]) -> dict[str, str]:
    """{array: type}"""
    words = {word for text in texts for found in re.findall(r"__shared__[^;]*;", text) for word in re.findall(r"\w+", found)}
    return {word: type for word in sorted(words) if (type := declared(word, texts))}
