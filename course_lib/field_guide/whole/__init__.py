"""Whole models: a published folder opened, its decoder built from the chapter's layers.

    parts      norms, feed-forward layers, experts: as data and as modules
    decoder    the decoder, and the plan that it is built from
    families   what is peculiar to a family, a function each; mixtures and hybrids: more of them
    folder     config.json and safetensors; loading: names in the file to ours
    serving    many prompts at once; tiny: folders that anybody can make again; quantised: weights of 8 or 4 bits
    model      open_model, logits, generate; text: tokenizer and chat template; chat: a conversation"""
from course_lib.field_guide.whole.decoder import NotANumber
from course_lib.field_guide.whole.folder import BadCheckpoint
from course_lib.field_guide.whole.model import Model, open_model
