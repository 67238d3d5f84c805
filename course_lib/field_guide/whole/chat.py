"""`python -m course_lib chat FOLDER`: a conversation with a model on the disk.

Ctrl-C ends an answer and keeps the conversation, what was said included; Ctrl-D ends it all."""
import argparse

import torch

from course_lib.field_guide.whole.decoder import NotANumber
from course_lib.field_guide.whole.model import Model, cut, open_model


class Conversation:
    """What was said, and the caches that hold as much of it as the next turn begins with."""

    def __init__(self, model: Model, max_new_tokens: int = 512, stop: tuple = (), seed: int = 0, **sampling):
        self.model, self.limit, self.stop, self.seed = model, max_new_tokens, stop, seed
        self.sampling = sampling
        self.messages, self.caches, self.read = [], None, []

    def answer(self, said: str):
        """The answer, in pieces as they are made. It joins the conversation however it ends."""
        text, self.messages = self.model.text, [*self.messages, {"role": "user", "content": said}]
        ids = text.chat(self.messages)
        if self.caches is None or self.read != ids[:len(self.read)] or len(self.read) == len(ids):
            self.caches = self.model.decoder.caches()
        caches, self.caches, new, shown = self.caches, None, [], ""
        try:
            for token in self.model.stream(ids, self.limit, self.seed + len(self.messages), self.stop, caches,
                                           **self.sampling):
                new.append(token)
                whole = cut(text.decode(new), self.stop)
                ready = self.safe(whole)
                yield ready[len(shown):]
                shown = max(shown, ready, key=len)
            yield whole[len(shown):] if new else ""
            self.caches, self.read = caches, [*ids, *new[:-1]]       # the last token was made, not read
        finally:
            self.messages.append({"role": "assistant", "content": cut(text.decode(new), self.stop)})

    def safe(self, text: str) -> str:
        """Without the beginning of a stop string or of a letter, which later tokens may complete."""
        text = text.rstrip("\N{REPLACEMENT CHARACTER}")
        held = max((n for one in self.stop for n in range(1, len(one)) if text.endswith(one[:n])), default=0)
        return text[:len(text) - held]


def options(argv: list[str]):
    parser = argparse.ArgumentParser(prog="python -m course_lib chat", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="with config.json, *.safetensors and tokenizer.json")
    for name, kind, default, about in (("--temperature", float, 0.7, "0 takes the likeliest token"),
                                       ("--top-p", float, None, "share of probability"),
                                       ("--min-p", float, None, "share of the likeliest token's probability"),
                                       ("--seed", int, 0, ""), ("--repetition-penalty", float, 1.0, ""),
                                       ("--max-new-tokens", int, 512, "per answer")):
        parser.add_argument(name, type=kind, default=default, help=f"{about} ({default})".strip())
    parser.add_argument("--stop", action="append", default=[],
                        help="a string that ends an answer; may be given again")
    parser.add_argument("--kernels", action="store_true", help="attention, rotations and norms by the course's own "
                        "kernels: slow without a card")
    parser.add_argument("--weights", choices=("int8", "int4"), help="matrices of so many bits: less memory, less exact")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--system", help="what the model is told before the conversation")
    given = parser.parse_args(argv)
    if given.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: torch sees no card here")
    return given


def main(argv: list[str]) -> int:
    given = options(argv)
    try:
        model = open_model(given.folder, kernels=given.kernels, device=given.device,
                           weights=given.weights)
        model.text.needed()
    except ValueError as error:             # BadCheckpoint, or no tokenizer
        print(f"chat: {error}")
        return 2
    for note in model.notes:
        print(note)
    talk = Conversation(model, given.max_new_tokens, tuple(given.stop), given.seed,
                        temperature=given.temperature, top_p=given.top_p, min_p=given.min_p,
                        repetition_penalty=given.repetition_penalty)
    if given.system:
        talk.messages.append({"role": "system", "content": given.system})
    while True:
        try:
            said = input("you: ")
        except EOFError:
            said = ""
        except KeyboardInterrupt:
            print("\nan empty line ends the conversation")
            continue
        if not said.strip():
            if model.kernels:
                print("by kernels:", ", ".join(f"{many:,} x {what}" for what, many in model.kernels.items()))
            return 0
        if not answer(talk, said):
            return 1


def answer(talk: Conversation, said: str) -> bool:
    print("model: ", end="", flush=True)
    try:
        for piece in talk.answer(said):
            print(piece, end="", flush=True)
    except KeyboardInterrupt:
        print(" [stopped]", end="")
    except (NotANumber, ValueError) as error:       # or what the template does not take
        print(f"\nchat: {error}")
        return False
    print()
    return True
