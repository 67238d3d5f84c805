"""The disassembler's text as instructions: their source lines, kinds, basic blocks and loops."""
import re
from dataclasses import dataclass, field

HEAD = re.compile(r'^\s*//## File "([^"]*)", line (\d+)')
INSTRUCTION = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/\s+(?:@!?\w+\s+)?([A-Z][A-Z0-9_]*)((?:\.[\w-]+)*).*;")
LABEL = re.compile(r"^\s*(\.L_\w+):")
OUT_OF_LINE = re.compile(r"^\s*\$?\$__internal\w*\$\S*:")
TARGET = re.compile(r"`\((\.L_\w+)\)")
ENDS = {"BRA", "BRX", "JMP", "JMX", "EXIT", "RET", "KILL", "BRXU", "JMXU"}

# kind: the instructions of that kind, by the beginning of their names
KINDS = {
    "tensor": "HMMA IMMA DMMA BMMA QMMA OMMA HGMMA IGMMA QGMMA BGMMA UTCHMMA UTCQMMA UTCIMMA UTCOMMA",
    "FP32": "FADD FMUL FFMA FMNMX FSETP FSET FSEL FCHK FADD2 FMUL2 FFMA2 FADD32I FMUL32I FFMA32I FMNMX3 "
            "FSWZADD",
    "FP16": "HADD2 HFMA2 HMUL2 HMNMX2 HSETP2 HSET2 HADD2_32I HFMA2_32I HMUL2_32I HFMA2_MMA",
    "FP64": "DADD DMUL DFMA DSETP DMNMX DSET", "special": "MUFU", "global load": "LDG LD LDGSTS",
    "global store": "STG ST", "shared load": "LDS LDSM", "shared store": "STS STSM", "local load": "LDL",
    "local store": "STL", "copy engine": "UTMALDG UTMASTG UTMAREDG UTMAPF UTMACMDFLUSH UBLKCP UBLKRED UBLKPF",
    "constant load": "LDC ULDC LDCU", "atomic": "ATOM ATOMG ATOMS RED REDG",
    "warp": "SHFL VOTE VOTEU MATCH REDUX WARPSYNC ENDCOLLECTIVE ELECT CREDUX",
    "convert": "F2F F2FP F2I F2IP I2F I2FP I2I FRND I2IP UF2FP UI2FP UF2F F2I I2F",
    "move": "MOV UMOV CS2R S2R S2UR R2UR R2P P2R MOV32I SEL USEL B2R R2B UP2UR UR2UP CS2UR MOVM",
    "control": "BRA BRX BRXU JMP JMX EXIT RET CALL BAR BSSY BSYNC BREAK NOP NANOSLEEP YIELD DEPBAR "
               "LDGDEPBAR MEMBAR ERRBAR CGAERRBAR CCTL CCTLL CCTLT BMOV BPT KILL RPCMOV SYNCS ACQBULK "
               "ARRIVES UCGABAR_ARV UCGABAR_WAIT FENCE PREEXIT USETMAXREG WARPGROUP",
    "integer": "IADD IADD3 IMAD IMUL LEA LOP LOP3 SHF SHL SHR ISETP IMNMX IABS IDP IDP4A POPC FLO BREV BMSK "
               "SGXT PRMT ISCADD VIADD VIADDMNMX VIMNMX VIMNMX3 VABSDIFF PLOP3 PSETP XMAD LEPC IADD2 ISET "
               "UIADD3 UIMAD ULEA ULOP3 USHF UISETP UPRMT UPLOP3 UFLO UPOPC UBREV UBMSK USGXT UIABS UVIADD "
               "UVIMNMX UIMNMX UPSETP"}
KIND_OF = {name: kind for kind, names in KINDS.items() for name in names.split()}
WIDTHS = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16, "256": 32}


@dataclass
class Instruction:
    offset: int
    name: str                    # "LDG"
    modifiers: tuple[str, ...]   # ("E", "128", "CONSTANT")
    text: str                    # as the disassembler writes it
    places: tuple[tuple[str, int], ...]      # file and line, then where that was inlined, outwards
    block: int                   # which basic block it is in
    target: str = ""             # the label that it jumps to

    @property
    def kind(self) -> str:
        # HFMA2.MMA with -RZ, RZ writes a constant: a move on an idle pipe
        if self.name.startswith("HFMA2") and "-RZ, RZ" in self.text:
            return "move"
        if self.name == "IMAD" and "MOV" in self.modifiers:
            return "move"
        return KIND_OF.get(self.name, "other")

    @property
    def flops(self) -> int:
        """Operations of a tensor core instruction of one warp: two per product. HMMA.16816 is 16 x 8 x 16, of
        HGMMA.64x128x16 each of four warps has 16 rows."""
        if self.name == "HGMMA":
            _, columns, depth = next(m for m in self.modifiers if m.startswith("64x")).split("x")
            return 2 * 16 * int(columns) * int(depth)
        shape = next((m for m in self.modifiers if re.fullmatch(r"88(16|32)|16(8|84|816|832|864|88)", m)), "")
        if self.kind != "tensor" or not shape:
            return 0
        rows, columns, depth = (8, 8, shape[2:]) if shape.startswith("88") else (16, 8, shape[3:])
        return 2 * rows * columns * int(depth)

    @property
    def bytes(self) -> int:
        """Bytes per lane of a load or store."""
        if self.name in ("LDSM", "STSM"):    # a lane's address is that of a row of a matrix
            return 16
        return next((WIDTHS[m] for m in reversed(self.modifiers) if m in WIDTHS), 4)


@dataclass
class Code:
    """One kernel's machine code. `loops` are (first, last) basic block of each backward jump."""
    instructions: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)         # label: the block that it begins
    loops: list[tuple[int, int]] = field(default_factory=list)
    rare: set[int] = field(default_factory=set)      # blocks of slow paths: of a division, of a warp apart


def read(text: str, symbol: str) -> Code:
    """The kernel `symbol` of a disassembled file."""
    code, places, fresh, block, beyond = Code(), (), False, 0, False
    for line in _section(text, symbol):
        if head := HEAD.match(line):
            places = (*(places if fresh else ()), (head[1], int(head[2])))
            fresh = True
        elif OUT_OF_LINE.match(line):
            beyond = True
        elif label := LABEL.match(line):
            block += bool(code.instructions) and code.instructions[-1].block == block
            code.labels[label[1]] = block
        elif found := INSTRUCTION.match(line):
            fresh = False
            offset, name, modifiers = found.groups()
            shown = line.split("*/", 1)[1].strip().removesuffix(";").strip()
            target = TARGET.search(line)
            made = Instruction(int(offset, 16), name, tuple(modifiers.split(".")[1:]), shown, places, block,
                               target[1] if target and name == "BRA" else "")
            code.instructions.append(made)
            if beyond or name in ("CALL", "ENDCOLLECTIVE") or "COLLECTIVE" in modifiers:
                code.rare.add(block)
            block += name in ENDS
    _drop_padding(code)
    code.loops = [(code.labels[i.target], i.block) for i in code.instructions
                  if i.target and code.labels.get(i.target, i.block + 1) <= i.block]
    return code


def _section(text: str, symbol: str) -> list[str]:
    """The lines of one kernel: from its label to the next section."""
    lines, inside = [], False
    for line in text.splitlines():
        if line.startswith(f".text.{symbol}:"):
            inside = True
        elif inside and line.lstrip().startswith((".section", "//-----")):
            break
        elif inside:
            lines.append(line)
    return lines


def _drop_padding(code: Code) -> None:
    """Behind the last instruction: a jump to itself, which is never reached, and NOPs."""
    kept = code.instructions
    while kept and kept[-1].name == "NOP":
        kept.pop()
    if kept and kept[-1].name == "BRA" and code.labels.get(kept[-1].target) == kept[-1].block:
        alone = sum(i.block == kept[-1].block for i in kept) == 1
        if alone and not any(i.target == kept[-1].target for i in kept[:-1]):
            kept.pop()
