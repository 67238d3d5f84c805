"""Operands of PTX instructions as C++: registers read and written as a type."""

P = "laptop::ptx::"
TYPES = {"b8": "uint8_t", "u8": "uint8_t", "s8": "int8_t", "b16": "uint16_t", "u16": "uint16_t",
         "s16": "int16_t", "b32": "uint32_t", "u32": "uint32_t", "s32": "int32_t", "b64": "uint64_t",
         "u64": "uint64_t", "s64": "int64_t", "f32": "float", "f64": "double", "f16": P + "f16",
         "bf16": P + "bf16", "f16x2": P + "f16x2", "bf16x2": P + "bf16x2", "f32x2": P + "f32x2",
         "s16x2": P + "s16x2", "u16x2": P + "u16x2", "pred": "bool"}
FLOATS = {"f32", "f64", "f16", "bf16", "f16x2", "bf16x2", "f32x2"}
BYTES = {"b8": 1, "u8": 1, "s8": 1, "b16": 2, "u16": 2, "s16": 2, "f16": 2, "b32": 4, "u32": 4, "s32": 4,
         "f32": 4, "b64": 8, "u64": 8, "s64": 8, "f64": 8}


class Unknown(Exception):
    """An instruction that this table does not have."""

    def __init__(self, instruction: str):
        super().__init__(instruction)
        self.instruction = instruction.replace("\\", "").replace('"', "'")


def get(type_: str, operand) -> str:
    """C++ that reads an operand as a type."""
    if isinstance(operand, tuple) and operand[0] == "number":
        return f"({TYPES[type_]})({operand[1]})"
    if not isinstance(operand, str):
        raise Unknown(str(operand))
    return f"{P}get<{TYPES[type_]}>({operand})"


def put(target, expression: str) -> str:
    if target == "laptop_unused":
        return f"(void)({expression});"
    if not isinstance(target, str):
        raise Unknown(str(target))
    return f"{target} = {P}put({expression});"


def own(target: str) -> str:
    """The address of the variable itself that stands for an output: an instruction that ends later writes it then."""
    return f"laptop_own_{target.removeprefix('laptop_')}"


def place(operand) -> str:
    """The address of the variable that an input is; null if it is none."""
    return own(operand).replace("_own_", "_place_") if str(operand)[7:].isdigit() else "nullptr"


def predicate(operand) -> str:
    return f"({operand}) & 1"


def whole(operand, type_: str = "uint32_t") -> str:
    """An integer operand, a register or a number."""
    if isinstance(operand, str):
        return f"({type_}){operand}"
    if operand[0] != "number":
        raise Unknown(str(operand))
    return operand[1]


def registers(name: str, values: list) -> str:
    return (f"{P}reg {name}[{len(values)}] = {{{', '.join(map(_held, values))}}};")


def _held(value) -> str:
    """A register, or the bits of a number that stands for one: 0. is a float's."""
    number = value if isinstance(value, str) else value[1]
    return f"{P}put({number}f)" if "." in number else number


def assigned(targets: list, name: str) -> str:
    return " ".join(f"{t} = {name}[{i}];" for i, t in enumerate(targets) if t != "laptop_unused")
