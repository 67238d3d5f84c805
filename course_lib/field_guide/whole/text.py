"""What a folder says about text: tokenizer.json, the template of a chat, and the tokens that end a text."""
import json
from datetime import datetime
from functools import cached_property, partial

MISSING = 'texts need the library tokenizers: pip install "course_lib[models]"'


class Text:
    def __init__(self, folder):
        self.path = folder.path
        generation = folder.json("generation_config.json", needed=False) or {}
        self.settings = folder.json("tokenizer_config.json", needed=False) or {}
        ends = generation.get("eos_token_id", folder.config.get("eos_token_id"))
        self.ends = frozenset(ends if isinstance(ends, list) else [] if ends is None else [ends])
        template = self.path / "chat_template.jinja"
        self.template = (template.read_text(encoding="utf-8") if template.exists()
                         else self.settings.get("chat_template"))

    @cached_property
    def tokenizer(self):
        file = self.path / "tokenizer.json"
        if not file.exists():
            return None
        try:
            from tokenizers import Tokenizer
        except ModuleNotFoundError:
            raise ModuleNotFoundError(MISSING) from None
        try:
            return Tokenizer.from_file(str(file))
        except Exception as error:          # the library raises Exception itself
            from course_lib.field_guide.whole.folder import BadCheckpoint
            raise BadCheckpoint("tokenizer.json", None, str(error)) from None

    def needed(self):
        if self.tokenizer is None:
            raise ValueError(f"{self.path} has no tokenizer.json: give lists of ids in place of texts")
        return self.tokenizer

    def encode(self, text: str, special: bool = True) -> list[int]:
        return self.needed().encode(text, add_special_tokens=special).ids

    def decode(self, ids) -> str:
        return self.needed().decode(list(ids), skip_special_tokens=True)

    def chat(self, messages: list[dict]) -> list[int]:
        """The ids of a conversation, [{"role": "user", "content": ...}, ...], ready for the model's turn."""
        if not self.template:
            return self.encode("".join(f"{one['role']}: {one['content']}\n" for one in messages)
                               + "assistant:")
        from jinja2.exceptions import TemplateError
        try:
            return self.encode(self.rendered(messages), special=False)
        except TemplateError as error:
            raise ValueError(f"the template of a chat in {self.path}: {error}") from None

    def rendered(self, messages: list[dict]) -> str:
        """The conversation by the folder's template, which may use what published ones do."""
        from jinja2.exceptions import TemplateError
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        def refuse(message):
            raise TemplateError(message)
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                                    extensions=["jinja2.ext.loopcontrols"])
        environment.globals |= {"raise_exception": refuse, "strftime_now": datetime.now().strftime}
        environment.filters["tojson"] = partial(json.dumps, ensure_ascii=False)     # jinja's escapes < and >
        named = {one["name"]: one["template"] for one in self.template} if isinstance(
            self.template, list) else {"default": self.template}
        signs = {name: said["content"] if isinstance(said, dict) else said
                 for name, said in self.settings.items() if name.endswith("_token") and said}
        template = environment.from_string(named.get("default", next(iter(named.values()))))
        return template.render(messages=messages, add_generation_prompt=True, **signs)
