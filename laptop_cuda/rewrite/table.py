"""The generated end of every source: one C function per kernel, and the table with names and types.

The compiler evaluates what the text cannot tell: the types of parameters, constants, which `#if` is taken."""
import re

from ..text.outline import Outline
from ..text.signature import KernelText
from ..text.tokens import SPECIFIERS, Token, match_forward, split_commas
def constants(source: Outline) -> list[tuple[str, str, tuple]]:
    """(name, expression, conditions) of the integer and floating constants at namespace scope."""
    found, tokens = {}, source.tokens
    known: set[str] = set()
    for i, token in enumerate(tokens):
        space = source.namespace[i]
        if token.kind == "directive":
            define = re.match(r"#\s*define\s+(\w+)[ \t]+(\S.*?)\s*(?://.*)?$", token.text)
            if define and space is not None:
                numbers = r"\b0[xX][\da-fA-F]+|\b[\d.]+(?:[eE][+-]?\d+)?[fFuUlL]*"
                words = set(re.findall(r"[A-Za-z_]\w*", re.sub(numbers, "", define.group(2))))
                if words <= known and re.fullmatch(r"[\w\s.+\-*/%()<>]+", define.group(2)):
                    known.add(define.group(1))
                    found[define.group(1)] = (define.group(1), define.group(1),
                                              ((f"#ifdef {define.group(1)}",),))
        elif space is not None and token.text in ("constexpr", "const") and _starts_declaration(tokens, i):
            near = range(i, min(i + 12, len(tokens)))
            end = next((n for n in near if tokens[n].text in ("=", ";", "{", "(")), None)
            if end and tokens[end].text in ("=", "{") and tokens[end - 1].kind == "name":
                words = {t.text for t in tokens[max(i - 3, 0):end]}
                if words & {"__constant__", "__device__", "*", "[", "&", "template"}:
                    continue
                name = tokens[end - 1].text
                known.add(name)
                found[name] = (name, f"{space}::{name}" if space else name, source.conditions[i])
    bare = {t.text.split()[-1] for t in tokens
            if t.kind == "directive" and re.fullmatch(r"#\s*define\s+\w+\s*", t.text)}
    return [row for name, row in found.items() if name not in bare]      # some branch gives it no number


def _starts_declaration(tokens: list, i: int) -> bool:
    while i and tokens[i - 1].text in ("static", "inline", "__device__", "constexpr", "int", "float",
                                       "unsigned"):
        i -= 1
    return i == 0 or tokens[i - 1].text in (";", "{", "}") or tokens[i - 1].kind == "directive"


def symbols(source: Outline,
            of: tuple = ("__constant__", "__device__", "__managed__")) -> list[tuple[str, str, tuple]]:
    """(name, expression, conditions) of the `__constant__` and `__device__` variables at namespace scope."""
    found, tokens = {}, source.tokens
    for i, token in enumerate(tokens):
        space = source.namespace[i]
        if space is not None and token.text in of:
            for name in _declared(tokens, i):
                found[name] = (name, f"{space}::{name}" if space else name, source.conditions[i])
    return list(found.values())


def _declared(tokens: list[Token], first: int) -> list[str]:
    """The variables of the declaration around token `first`; none if it declares a function or a constant."""
    i, initial = first, False
    while i < len(tokens) and tokens[i].text != ";":
        if (tokens[i].text in ("extern", "constexpr", "inline", "__shared__", "operator", "struct")
            and not initial):
            return []
        if tokens[i].text == "(" and not initial and tokens[i - 1].text not in SPECIFIERS:
            return []
        initial = initial or tokens[i].text in ("=", "{")
        i = (match_forward(tokens, i) if tokens[i].text in ("(", "[", "{") else i) + 1
        initial = initial and not (i < len(tokens) and tokens[i].text == ",")
    names = []
    for begin, end in split_commas(tokens, first, i):
        stop = next((n for n in range(begin, end) if tokens[n].text in ("=", "[", "{")), end)
        if tokens[stop - 1].kind == "name":
            names.append(tokens[stop - 1].text)
    return names


def guarded(conditions: tuple[tuple[str, ...], ...], text: str) -> str:
    """`text` inside the same #if as the thing it speaks of."""
    for chain in reversed(conditions):
        text = "\n".join(chain) + "\n" + text + "#endif\n"
    return text


# names that the C++ library overloads in the global namespace, so that `&::name` alone is ambiguous
LIBRARY = frozenset("abs acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh div erf erfc "
                    "exp exp2 expm1 fabs fdim floor fma fmax fmin fmod frexp hypot ilogb isfinite isinf "
                    "isnan isnormal ldexp lgamma llrint llround log log10 log1p log2 logb lrint lround max "
                    "min modf nearbyint nextafter pow remainder remquo rint round rsqrt scalbn signbit sin "
                    "sinh sqrt tan tanh tgamma trunc".split())


def expression(kernel: KernelText, instance: str, overloaded: bool) -> str:
    """C++ for the address of the kernel; `instance` is its template arguments with the brackets, or ''."""
    if (overloaded or kernel.name in LIBRARY) and not kernel.template:
        return f"static_cast<void (*)({', '.join(kernel.types)})>(&::{kernel.name})"
    return f"&::{kernel.name}{instance}"


def read_mark(path) -> str:
    """Defined where the compiler has read the file, which may be included under an #if."""
    return "LAPTOP_READ_" + re.sub(r"\W", "_", path.name)


def _of_each(sources: list[Outline], found) -> list[tuple[str, str, tuple]]:
    reached = {source.path: ((f"#if !defined LAPTOP || defined {read_mark(source.path)}",),)
               for source in sources if source.path}
    return [(name, value, reached.get(source.path, ()) + conditions)
            for source in sources for name, value, conditions in found(source)]


def table(sources: list[Outline], wanted: list[tuple[KernelText, str]], entry) -> str:
    """The end of a generated source: entries, then the table of rows.

    `sources` are the file and the files beside it that it includes. `wanted` holds kernels with their template
    arguments; `entry(number, expression)` writes `laptop_entry_<number>`, for the CPU or a GPU."""
    free = [f for source in sources for f in source.functions if not f.member]
    names = [_full_name(f) for f in free]
    of_host = {_full_name(f) for f in free if f.template and not f.on_device}
    text, rows = '\n#line 1 "entries"\n', ""
    unnamed = any(re.search(r"\bnamespace\s*\{", source.text) for source in sources)
    for number, (kernel, instance) in enumerate(wanted):
        address, chosen = expression(kernel, instance, names.count(kernel.name) > 1), ""
        if kernel.template and kernel.name in of_host and not unnamed and (chosen := _chosen(kernel, number)):
            address = f"::{_space(kernel)}laptop_chosen_{number}{instance}()"
        bounds, its_function = _bounds(kernel, instance, number, unnamed)
        text += guarded(kernel.conditions, its_function + chosen + entry(number, address))
        if kernel.choices:
            rows += guarded(kernel.conditions, _names(kernel, number))
        rows += guarded(kernel.conditions, f'{{"kernel", "{number}", (void*)laptop_entry_{number}, '
                        f"laptop_entries::types({address}), {bounds}, 0.0, nullptr, 0}},\n")
    for name, value, conditions in _of_each(sources, constants):
        rows += guarded(conditions, f'laptop_entries::constant("{name}", {value}),\n')
    for name, value, conditions in _of_each(sources, symbols):
        kind = f"std::remove_all_extents_t<decltype({value})>"
        rows += guarded(conditions, f'{{"symbol", "{name}", nullptr, laptop_entries::text<{kind}>, '
                        f"std::is_const<{kind}>::value, 0.0, (void*)&{value}, sizeof({value})}},\n")
    return (text + "static const laptop_entries::Row laptop_rows[] = {\n" + rows
            + "{nullptr, nullptr, nullptr, nullptr, 0, 0.0, nullptr, 0}};\n"
            + "LAPTOP_EXPORT const laptop_entries::Row* laptop_table() { return laptop_rows; }\n")


def _full_name(function) -> str:
    return f"{function.namespace}::{function.name}" if function.namespace else function.name


def _names(kernel: KernelText, number: int) -> str:
    """A row with the names of those parameters that the preprocessor keeps."""
    parts = "".join(guarded(chain, f'"|{name}"\n') for name, chain in zip(kernel.parameters, kernel.choices))
    return f'{{"names", "{number}"\n{parts}, nullptr, nullptr, 0, 0.0, nullptr, 0}},\n'


def _space(kernel: KernelText) -> str:
    return f"{kernel.function.namespace}::" if kernel.function.namespace else ""


def _chosen(kernel: KernelText, number: int) -> str:
    """For the address of a template kernel beside a host template of its name; "" if not to be told."""
    named = [re.fullmatch(r"[^=]*?(\.\.\.)?\s*\b(\w+)\s*(?:=.*)?", t, re.DOTALL) for t in kernel.template]
    if kernel.choices or not all(named):
        return ""
    arguments = ", ".join(found[2] + (found[1] or "") for found in named)
    chosen = f"static_cast<void (*)({', '.join(kernel.types)})>(&{kernel.function.name}<{arguments}>)"
    made = (f"template <{', '.join(kernel.template)}> constexpr auto laptop_chosen_{number}() {{ return "
            f"{chosen}; }}")
    space = kernel.function.namespace
    return (f"namespace {space} {{ {made} }}" if space else made) + "\n"


def _bounds(kernel: KernelText, instance: str, number: int, unnamed: bool) -> tuple[str, str]:
    """A call for the launch bounds, and its function: in the kernel's namespace, over its template
    parameters. A namespace that may be inside an unnamed one is not opened again: that would be another."""
    if not kernel.bounds:
        return "0", ""
    template = f"template <{', '.join(kernel.template)}> " if kernel.template else ""
    name, space = f"laptop_bounds_{number}", kernel.function.namespace
    made = f"{template}constexpr int {name}() {{ return (int)({kernel.bounds}); }}"
    if space and unnamed:
        made, space = f"using namespace ::{space}; {made}", f"laptop_beside_{number}"
    if not space:
        return f"{name}{instance}()", made + "\n"
    return f"{space}::{name}{instance}()", f"namespace {space} {{ {made} }}\n"
