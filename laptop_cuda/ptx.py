"""Inline PTX as C++: each instruction that is known becomes calls of `include/ptx.h`.

    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(to), "l"(from));
 -> do { reg laptop_0 = put(to), laptop_1 = put(from); copy_async(in_shared(laptop_0), generic(laptop_1),
 16, 16); } while (0)

An asm with an instruction that is not known, or a branch, becomes a trap with the instruction's name: an
error where it is reached, and none where it is not.
"""
from __future__ import annotations

import re
from dataclasses import dataclass

from . import ptx_instructions
from .ptx_operands import Unknown

SPACE = "laptop::ptx::"
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
    try:
        body = "".join(_instruction(line, operands) for line in _lines(template, bool(operands)))
    except Unknown as fault:
        return f'{SPACE}unknown("{fault.instruction}")'
    if not body and not outputs:
        return "(void)0"
    before = after = ""
    for n, operand in enumerate(operands):
        reads = "=" not in operand.constraint
        start = f"{SPACE}put({operand.text})" if reads else "0"
        before += f"{SPACE}reg laptop_{n} = {start}; (void)laptop_{n}; "
        if n < len(outputs):
            after += f"({operand.text}) = {SPACE}get<std::decay_t<decltype(({operand.text}))>>(laptop_{n}); "
    return f"do {{ {before}{body}{after}}} while (0)"


def unquoted(text: str) -> str:
    """The characters of a C++ string literal."""
    raw = re.fullmatch(r'(?:u8|[uUL])?R"([^()\\\s]{0,16})\((.*)\)\1"', text, re.DOTALL)
    if raw:
        return raw.group(2)
    return re.sub(r"\\(.)", lambda m: ESCAPES.get(m.group(1), m.group(1)), text[1:-1], flags=re.DOTALL)


def _lines(template: str, escaped: bool) -> list[str]:
    """The statements of a PTX text; "{" and "}" where a scope opens and closes."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", " ", template, flags=re.DOTALL)
    text = text.replace("%%", "%") if escaped else text
    found = []
    for line in text.split(";"):
        line = " ".join(line.split())
        while line[:1] in ("{", "}"):
            found.append(line[0])
            line = line[1:].lstrip()
        if line:
            found.append(line)
    return found


def _instruction(line: str, operands: list[Operand]) -> str:
    if line in ("{", "}"):
        return line + " "
    if declared := re.match(r"\.reg\s+\.\w+\s+(.*)", line):
        names = []
        for name in declared.group(1).replace("%", "").split(","):
            many = re.fullmatch(r"\s*(\w+)<(\d+)>\s*", name)
            names += [f"{many[1]}{n}" for n in range(int(many[2]))] if many else [name.strip()]
        return "".join(f"{SPACE}reg {_register(n)} = 0; (void){_register(n)}; " for n in names)
    found = re.fullmatch(r"(?:@(!?)\s*(%?\w+)\s+)?([a-z][\w.:]*)(?:\s+(.*))?", line)
    if not found or ":" in found[3].replace("::", ""):
        raise Unknown(line.split()[0])
    negated, predicate, opcode, rest = found.groups()
    given = [_operand(part, operands) for part in _split(rest or "")]
    code = ptx_instructions.translate(opcode, given)
    if predicate:
        guard = _operand(predicate, operands)
        return f"if ({negated}({guard} & 1)) {{ {code} }} "
    return code + " "


def _split(text: str) -> list[str]:
    parts, depth, part = [], 0, ""
    for letter in text:
        depth += (letter in "{[(") - (letter in "}])")
        if letter == "," and depth == 0:
            parts, part = [*parts, part], ""
        else:
            part += letter
    return [p.strip() for p in [*parts, part] if p.strip()]


def _register(name: str) -> str:
    return f"laptop_reg_{name}"


def _operand(text: str, operands: list[Operand]):
    """A C++ name or literal; a list for {a, b}; ("address", base, offset) for [a + 16]; a special
    register's call."""
    text = text.strip()
    if text.startswith("{"):
        return [_operand(part, operands) for part in _split(text[1:-1])]
    if text.startswith("["):
        inner = re.fullmatch(r"\[\s*(%?\[?[\w$]+\]?)\s*(?:\+\s*(-?\w+))?\s*\]", text)
        if not inner:
            raise Unknown(text)
        offset = (
            _operand(inner[2], operands)
            if inner[2] and not inner[2].lstrip("-").isdigit()
            else inner[2] or "0"
        )
        return ("address", _operand(inner[1], operands), offset)
    if "|" in text:
        return ("both", *(_operand(part, operands) for part in text.split("|")))
    if text.startswith("!"):
        return f"!({_operand(text[1:], operands)} & 1)"
    if number := re.fullmatch(r"%(\d+)", text):
        if int(number[1]) >= len(operands):
            raise Unknown(text)
        return f"laptop_{number[1]}"
    if named := re.fullmatch(r"%\[(\w+)\]", text):
        return f"laptop_{next(n for n, o in enumerate(operands) if o.name == named[1])}"
    if text == "_":
        return "laptop_unused"
    if hexadecimal := re.fullmatch(r"0[fFdD]([0-9a-fA-F]{8}|[0-9a-fA-F]{16})", text):
        return f"0x{hexadecimal[1]}ull"
    if re.fullmatch(r"-?(0[xX][0-9a-fA-F]+|\d+)U?", text):
        return ("number", text.rstrip("U"))
    if re.fullmatch(r"-?\d+\.\d*(e[+-]?\d+)?", text):
        return ("number", text)
    if special := ptx_instructions.special(text.lstrip("%")) if text.startswith("%") else None:
        return special
    if re.fullmatch(r"%?[A-Za-z_$][\w$]*", text):
        return _register(text.lstrip("%").replace("$", "_"))
    raise Unknown(text)
