"""The checks of a chapter's declarations as source, with what they refer to: a handout takes them as code."""
import ast
import inspect
from types import ModuleType

from course_lib.exercises.declare import chapter_of, words
from course_lib.exercises.parts import Exercise


class HandoutError(Exception):
    """The reason why a handout cannot be made."""


class Pieces:
    """Source of a chapter's declarations, and the imports and definitions that it takes."""

    def __init__(self, module: ModuleType):
        self.module = module
        self.imports: set[str] = set()
        self.definitions: dict[str, str] = {}
        self.defined: dict[str, ast.stmt] = {}
        self.declared: dict[str, list[ast.keyword]] = {}
        for node in ast.parse(inspect.getsource(module)).body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                self.defined[node.name] = node
            elif isinstance(node, ast.Assign):
                self.defined |= {target.id: node for target in node.targets if isinstance(target, ast.Name)}
            for call in (n for n in ast.walk(node) if isinstance(n, ast.Call)):
                self.declared |= {k.value.value: call.keywords for k in call.keywords
                                  if k.arg == "id" and isinstance(k.value, ast.Constant)}

    def checks(self, exercise: Exercise) -> str:
        """How its declaration says what is compared."""
        asked = words(chapter_of(exercise.id)).get(exercise.id, {})
        said = {k.arg: k for k in self.declared.get(exercise.id, [])} | {
            name: ast.keyword(name, ast.Constant(value)) for name, value in asked.items()}
        if not said:
            raise HandoutError(f"exercise {exercise.id}: its declaration was not found")
        kept = [said[name] for name in ("measure", "compare", "properties") if name in said]
        bounds = [said[name] for name in ("tolerance", "rtol") if name in said]
        for keyword in kept + bounds:
            self.refer(keyword)
        if "compare" not in said:
            usual = "number" if exercise.kind in ("predict", "choose") else "close"
            kept.append(ast.keyword("compare", ast.Call(ast.Name(usual), [], bounds)))
        return ", ".join(map(ast.unparse, kept))

    def refer(self, node: ast.AST) -> None:
        """Bring along what the code refers to."""
        names = vars(self.module)
        used = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
        for name in sorted(used & names.keys() - self.definitions.keys()):
            value = names[name]
            if inspect.ismodule(value):
                self.imports.add(f"import {value.__name__} as {name}" if value.__name__ != name
                                 else f"import {name}")
            elif name in self.defined:
                self.definitions[name] = ""                      # taken: it may call itself
                self.refer(self.defined[name])
                del self.definitions[name]
                self.definitions[name] = ast.unparse(self.defined[name]) + "\n"
            elif callable(value):
                renamed = f" as {name}" if name != value.__name__ else ""
                self.imports.add(f"from {value.__module__} import {value.__name__}{renamed}")
            else:
                raise HandoutError(f"{self.module.__name__}: `{name}` cannot be carried over")
