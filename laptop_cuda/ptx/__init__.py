"""Inline PTX as C++: each instruction that is known becomes calls of `include/ptx.h`.

    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(to), "l"(from));
 -> do { reg laptop_0 = put(to), laptop_1 = put(from); copy_async(in_shared(laptop_0), generic(laptop_1),
 16, 16); } while (0)

Labels are labels of C++, of this statement alone. An asm with an instruction that is not known becomes a trap
with the instruction's name: an error where it is reached, and none where it is not."""
import re
from dataclasses import dataclass

from ..text.tokens import split_text
from . import instructions
from .operands import Unknown

SPACE = "laptop::ptx::"
CONSTANT = r"[-~(\s]*(0[xX][\da-fA-F]+|\d+)U?([-+*/%|&^<>~()\s]+(0[xX][\da-fA-F]+|\d+)U?)*[)\s]*"
VARIABLE = re.compile(r"(?!.*(\+\+|--))[\w\s.\[\]+*/%-]+")        # or a number: it may be named twice
ESCAPES = {"n": "\n", "t": "\t", "\\": "\\", '"': '"', "'": "'", "\n": ""}


@dataclass
class Operand:
    """One operand of an asm statement."""
    name: str            # of "[name]", or ""
    constraint: str      # "=r", "+f", "l", "n"
    text: str            # the C++ expression


def statement(template: str, outputs: list[Operand], inputs: list[Operand]) -> str:
    """C++ for an asm statement, without the semicolon at its end."""
    operands = outputs + inputs
    lines = _lines(template, bool(operands))
    labels = [_label(line[:-1]) for line in lines if line.endswith(":")]
    try:
        body = "".join(_instruction(line, operands, labels) for line in lines)
        for name in re.findall(r"\blaptop_reg_(\w+)", body):
            if f"reg {_register(name)};" not in body:
                raise Unknown("%" + name)
    except Unknown as fault:
        return f'{SPACE}unknown("{fault.instruction}")'
    if not body and not outputs:
        return "(void)0"
    before = after = ""
    by_address = {int(n) for n in re.findall(r"\blaptop_own_(\d+)", body)}
    for n, operand in enumerate(operands):
        if re.search(rf"\blaptop_place_{n}\b", body):
            place = f"{SPACE}place({operand.text})" if VARIABLE.fullmatch(operand.text) else "nullptr"
            before += f"const void* const laptop_place_{n} = {place}; "
        if n in by_address:
            before += f"uint32_t* const laptop_own_{n} = (uint32_t*)&({operand.text}); "
            continue
        uses = re.findall(rf"\blaptop_{n}\b( = )?", body)
        only_set = uses and all(uses) and "@" not in template and not labels        # by an operand that is "+r" all the same
        reads = "=" not in operand.constraint and not (n < len(outputs) and only_set)
        start = f"{SPACE}put({operand.text})" if reads else "0"
        before += f"{SPACE}reg laptop_{n} = {start}; (void)laptop_{n}; "
        if n < len(outputs):
            after += f"({operand.text}) = {SPACE}get<std::decay_t<decltype(({operand.text}))>>(laptop_{n}); "
    named = f"__label__ {', '.join(labels)}; " if labels else ""
    return f"do {{ {named}{before}{body}{after}}} while (0)"


def unquoted(text: str) -> str:
    """The characters of a C++ string literal."""
    raw = re.fullmatch(r'(?:u8|[uUL])?R"([^()\\\s]{0,16})\((.*)\)\1"', text, re.DOTALL)
    if raw:
        return raw.group(2)
    return re.sub(r"\\(.)", lambda m: ESCAPES.get(m.group(1), m.group(1)), text[1:-1], flags=re.DOTALL)


def _lines(template: str, escaped: bool) -> list[str]:
    """The statements of a PTX text; "{" and "}" where a scope opens and closes, "name:" for a label."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", " ", template, flags=re.DOTALL)
    text = text.replace("%%", "%").replace("%=", "") if escaped else text
    found = []
    for line in text.split(";"):
        line = " ".join(line.split())
        while begun := re.match(r"[{}]|[A-Za-z_$%][\w$]*\s*:(?!:)", line):
            found.append(begun[0])
            line = line[begun.end():].lstrip()
        if line:
            found.append(line)
    return found


def _instruction(line: str, operands: list[Operand], labels: list[str]) -> str:
    if line in ("{", "}"):
        return line + " "
    if line.endswith(":"):
        return f"{_label(line[:-1])}: ; "
    if declared := re.match(r"\.reg\s*\.\w+\s+(.*)", line):
        return _declared(line, declared.group(1))
    found = re.fullmatch(r"(?:@(!?)\s*(%?\w+)\s+)?([a-z][\w.:]*)\s*(.*)", line)
    if not found or ":" in found[3].replace("::", ""):
        raise Unknown(line.split()[0])
    negated, predicate, opcode, rest = found.groups()
    if opcode in ("bra", "bra.uni") and _label(rest) in labels:
        code = f"goto {_label(rest)};"
    else:
        code = instructions.translate(opcode, [_operand(part, operands) for part in _split(rest)])
    if predicate:
        guard = _operand(predicate, operands)
        return f"if ({negated}({guard} & 1)) {{ {code} }} "
    return code + " "


def _declared(line: str, names: str) -> str:
    """Registers as variables. They have no initialiser, as a branch may go past it."""
    if ".b128" in line or ".v" in line:
        raise Unknown(line)
    found = []
    for name in names.replace("%", "").split(","):
        many = re.fullmatch(r"\s*(\w+)<(\d+)>\s*", name)
        found += [f"{many[1]}{n}" for n in range(int(many[2]))] if many else [name.strip()]
    return "".join(f"{SPACE}reg {_register(n)}; {_register(n)} = 0; (void){_register(n)}; " for n in found)


def _label(name: str) -> str:
    return "laptop_at_" + re.sub(r"[$%\s]", "_", name.strip())


def _split(text: str) -> list[str]:
    return list(filter(None, split_text(text)))


def _register(name: str) -> str:
    return f"laptop_reg_{name}"


def _operand(text: str, operands: list[Operand]):
    """A C++ name or literal; a list for {a, b}; ("address", base, offset) for [a + 16]; ("tensor", map, list) for
    [a, {x, y}]; ("part", a, "b1") for a.b1, a byte that no instruction here takes; a special register's call."""
    text = text.strip()
    if text.startswith("{"):
        return [_operand(part, operands) for part in _split(text[1:-1])]
    if text.startswith("[") and len(parts := _split(text[1:-1])) == 2:       # [map, {x, y}]
        return ("tensor", *(_operand(part, operands) for part in parts))
    if text.startswith("["):
        inner = re.fullmatch(r"\[\s*(%?\[?[\w$]+\]?)\s*(?:\+\s*(.+))?\]", text)
        if not inner:
            raise Unknown(text)
        base, offset = _operand(inner[1], operands), _operand(inner[2] or "0", operands)
        return ("address", *(part[1] if isinstance(part, tuple) else part for part in (base, offset)))
    if "|" in text:
        return ("both", *(_operand(part, operands) for part in text.split("|")))
    if text.startswith("!"):
        return f"!({_operand(text[1:], operands)} & 1)"
    if number := re.fullmatch(r"%(\d+)", text):
        if int(number[1]) >= len(operands):
            raise Unknown(text)
        return f"laptop_{number[1]}"
    if part := re.fullmatch(r"(%?[\w$]+)\.([bh][0-3])", text):
        return ("part", _operand(part[1], operands), part[2])
    if named := re.fullmatch(r"%\[(\w+)\]", text):
        return f"laptop_{next(n for n, o in enumerate(operands) if o.name == named[1])}"
    if text == "_":
        return "laptop_unused"
    if hexadecimal := re.fullmatch(r"0[fFdD]([0-9a-fA-F]{8}|[0-9a-fA-F]{16})", text):
        return f"0x{hexadecimal[1]}ull"
    if re.fullmatch(CONSTANT, text):
        number = text.replace("U", "")
        return ("number", number if re.fullmatch(r"-?\w+", number) else f"({number})")
    if re.fullmatch(r"-?\d+\.\d*(e[+-]?\d+)?", text):
        return ("number", text)
    if special := instructions.special(text.lstrip("%")) if text.startswith("%") else None:
        return special
    if re.fullmatch(r"%?[A-Za-z_$][\w$]*", text):
        return _register(text.lstrip("%").replace("$", "_"))
    raise Unknown(text)
