"""The statements of a kernel, walked once each: branches that join again, loops by their number of turns."""
import re

import z3

from .expressions import Expressions
from .memory import operands, refers_to
from .loops import Loop
from .parse import NotLifted, for_parts, operator
from .terms import THREAD
from .values import State, joined

COMPUTED = ("UNARY_OPERATOR", "PAREN_EXPR", "CONDITIONAL_OPERATOR", "COMPOUND_ASSIGNMENT_OPERATOR")
PURE_PTX = re.compile(r"\s*(ex2|lg2|rcp|rsqrt|sqrt|tanh|cvt|fma|mul|add|sub|mma|max|min|sin|cos)\.[\w.]+ [^\[\]]*")


def has_else(cursor, yes, no) -> bool:
    """Whether the word is written between the two: else they are a condition and its body, behind a first statement."""
    ends = yes.extent.end.offset, no.extent.start.offset
    return any(t.spelling == "else" and ends[0] <= t.extent.start.offset < ends[1] for t in cursor.get_tokens())


class Flow(Expressions):
    """Part of Lift. `self.state` is None after a jump; `self.jumps` has the states that jumped."""

    def run(self, cursor) -> None:
        if self.state is None or cursor is None:
            return
        kind = cursor.kind.name
        if cursor.kind.is_expression():
            self.value(cursor)
        elif kind in ("COMPOUND_STMT", "UNEXPOSED_STMT"):
            for child in cursor.get_children():
                self.run(child)
        elif kind in ("BREAK_STMT", "CONTINUE_STMT"):
            self.jumps[kind[:-5].lower()].append(self.state)
            self.state = None
        elif method := getattr(self, "run_" + kind.lower(), None):
            method(cursor)
        elif kind not in ("NULL_STMT",):
            raise NotLifted(kind.lower().replace("_", " "), cursor.location.line)

    def run_decl_stmt(self, cursor):
        for child in cursor.get_children():
            if child.kind.name == "VAR_DECL":
                self.declare(child)
            elif child.kind.name == "UNEXPOSED_DECL":
                raise NotLifted("a declaration of parts", cursor.location.line)

    def run_return_stmt(self, cursor):
        given = [self.value(c) if not self.returns_place else self.place(c) for c in cursor.get_children()]
        self.jumps["return"].append((given[0] if given else None, self.state))
        self.state = None

    def run_asm_stmt(self, cursor):
        """PTX of registers alone: what it writes is unknown."""
        words = [token.spelling for token in cursor.get_tokens()]
        given = words[words.index("(") + 1:next((i for i, word in enumerate(words) if word in (":", "::")), -1)]
        text = "".join(word.strip('"') for word in given).replace("\\n", "").replace("\\t", "")
        plain = all(word[0] == '"' for word in given) and "\\" not in text and words[0] in ("asm", "__asm__", "__asm")
        if not plain or not all(map(PURE_PTX.fullmatch, filter(str.strip, text.split(";")))):
            raise NotLifted("inline PTX", cursor.location.line)
        for part in operands(cursor):
            if part.kind.name in ("DECL_REF_EXPR", "ARRAY_SUBSCRIPT_EXPR", "MEMBER_REF_EXPR"):
                value = self.unknown(part.type, THREAD, "what inline PTX gives", cursor.location.line)
                self.store(self.place(part), value, part.type, cursor.location.line)
            elif part.kind.name in COMPUTED or refers_to(part) or \
                    part.kind.name == "BINARY_OPERATOR" and operator(part) == "=":
                raise NotLifted("inline PTX with a place that is computed", cursor.location.line)
            else:
                self.value(part)

    def run_if_stmt(self, cursor):
        test, *bodies = cursor.get_children()
        single = len(bodies) == 1 or len(bodies) == 2 and has_else(cursor, *bodies)
        if not test.kind.is_expression() or not single:
            raise NotLifted("an `if` with a first statement, or that a macro writes", cursor.location.line)
        yes, no = (*bodies, None)[:2]
        self.branch(self.condition(test), lambda: self.run(yes), lambda: self.run(no))

    def run_for_stmt(self, cursor):
        first, test, step, body = for_parts(cursor)
        self.run(first)
        self.loop(cursor, test, body, step)

    def run_while_stmt(self, cursor):
        test, body, *more = cursor.get_children()
        if more:
            raise NotLifted("a `while` that declares", cursor.location.line)
        self.loop(cursor, test, body, None)

    def run_do_stmt(self, cursor):
        body, test = cursor.get_children()
        kept, self.jumps = self.jumps, self.jumps | {"break": [], "continue": []}
        self.run(body)
        if self.jumps["break"] or self.jumps["continue"]:
            raise NotLifted("a jump out of a `do`", cursor.location.line)
        self.jumps = kept
        if self.state is not None:
            self.loop(cursor, test, body, None)

    def branch(self, condition, yes, no):
        """Both ways, each under its condition; the value that they give."""
        if z3.is_true(condition) or z3.is_false(condition):
            return (yes if z3.is_true(condition) else no)()
        before, ends = self.state, []
        for holds, way in ((condition, yes), (z3.Not(condition), no)):
            self.state = before.copy(holds)
            ends.append((way(), self.state))
        return self.meet(len(before.path), ends)

    def meet(self, common: int, ends: list):
        """One state of those that go on, and the value that came with it."""
        ends = [(value, state) for value, state in ends if state is not None]
        if len(ends) < 2:
            value, self.state = ends[0] if ends else (None, None)
            return value
        values, states = zip(*ends)
        whens = [state.path[common:] for state in states]
        self.state = State(path=states[0].path[:common])
        either = z3.simplify(z3.Or(*(z3.And(when) for when in whens)))
        if not z3.is_true(either):
            self.state.path.append(either)
        for key in states[0].env:
            if all(key in state.env for state in states):
                self.state.env[key] = joined(self.world, whens, [state.env[key] for state in states])
        self.state.after = self.last_barriers(states, whens)
        return None if values[0] is None else joined(self.world, whens, list(values))

    @staticmethod
    def last_barriers(states: list, whens: list) -> list:
        """Those of all ways, and those of one way under its conditions."""
        shared = set.intersection(*({id(a) for a in state.after} for state in states))
        found = {id(a): a for a in states[0].after if id(a) in shared}
        return [*found.values(), *((*a[:2], (*a[2], *when)) for state, when in zip(states, whens)
                                   for a in state.after if id(a) not in shared)]

    # loops

    def loop(self, cursor, test, body, step):
        at = (tuple(self.calls), cursor.hash)
        Loop(self, at, cursor.location.line, test, body, step).run()
