"""The families there are.

`default` promises nothing and fits every model that brings a chat template which only appends. The
others name a template of ours where the model's own does not only append, or cannot be had as one.

Must not know tokenizers, templates or how a family is picked. No other module knows the name of a
family, but for the list of names that the setting takes.

Spec: docs/sessions.md#families
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from sessions.errors.unseen import SettingsError
from sessions.tokens.families.declaration import ALL_ROLES, Clues, Family, ThinkingSwitch

AUTO: Final = "auto"

_NO_SYSTEM: Final = ALL_ROLES - {"system"}
_KEEPS_THINKING: Final[Mapping[str, object]] = MappingProxyType({"clear_thinking": False})
# DeepSeek's engines know the switch by several names and think only if asked to.
_DEEPSEEK_SWITCH: Final = ThinkingSwitch(
    names=("thinking", "enable_thinking"), mode_name="thinking_mode", default=False
)
# Its bars are full-width.
_DEEPSEEK_USER: Final = "<\uff5cUser\uff5c>"
_DEEPSEEK_ASSISTANT: Final = "<\uff5cAssistant\uff5c>"
_CHATML_MARKS: Final = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_KIMI_MARKS: Final = (
    "[BOS]",
    "[EOS]",
    "<|im_system|>",
    "<|im_user|>",
    "<|im_assistant|>",
    "<|im_end|>",
)
_MINIMAX_MARKS: Final = ("]~!b[", "]~b]", "[e~[")

_QWEN3: Final = Family(
    name="qwen3",
    template="qwen3",
    fixed_kwargs=_KEEPS_THINKING,
    end_of_turn="<|im_end|>",
    after_turn="\n",
    segment_specials=_CHATML_MARKS,
    assistant_start="<|im_start|>assistant",
    ignored_tail=("\n",),
    reasoning_parser="qwen3",
    tool_call_parser="qwen25",
    # Coders of the same vocabulary write calls in another form.
    clues=Clues(
        tokens={"<|im_end|>": 151645, "<tool_call>": 151657, "<think>": 151667},
        foreign=("<function=",),
    ),
)
_QWEN35: Final = Family(
    name="qwen35",
    template="qwen35",
    fixed_kwargs=_KEEPS_THINKING,
    append_roles=_NO_SYSTEM,
    end_of_turn="<|im_end|>",
    after_turn="\n",
    segment_specials=_CHATML_MARKS,
    assistant_start="<|im_start|>assistant",
    ignored_tail=("\n",),
    reasoning_parser="qwen3",
    tool_call_parser="qwen3_coder",
    clues=Clues(tokens={"<|im_end|>": 248046, "<tool_call>": 248058, "<think>": 248068}),
)
_QWENNEXT: Final = Family(
    name="qwennext",
    template="qwen3",
    template_texts=MappingProxyType({"reply_opening": "<think>\n"}),
    fixed_kwargs=_KEEPS_THINKING,
    end_of_turn="<|im_end|>",
    after_turn="\n",
    segment_specials=_CHATML_MARKS,
    assistant_start="<|im_start|>assistant",
    ignored_tail=("\n",),
    reasoning_parser="qwen3",
    tool_call_parser="qwen25",
    clues=Clues(
        tokens={"<|im_end|>": 151645, "<tool_call>": 151657, "<think>": 151667},
        template=("<|im_start|>assistant\n<think>\n",),
        foreign=("enable_thinking", "<function="),
    ),
)
_NEMOTRON3: Final = Family(
    name="nemotron3",
    fixed_kwargs=MappingProxyType({"truncate_history_thinking": False}),
    end_of_turn="<|im_end|>",
    after_turn="\n",
    segment_specials=("<s>", "</s>", "<|im_start|>", "<|im_end|>"),
    assistant_start="<|im_start|>assistant\n",
    ignored_tail=("\n",),
    reasoning_parser="nemotron_3",
    tool_call_parser="qwen3_coder",
    clues=Clues(
        tokens={"<|im_start|>": None, "<|im_end|>": None}, template=("truncate_history_thinking",)
    ),
)
_GLM47: Final = Family(
    name="glm47",
    fixed_kwargs=_KEEPS_THINKING,
    shared_tokens=("<|user|>", "<|observation|>"),
    max_trim_count=1,
    segment_specials=(
        "<|endoftext|>",
        "[gMASK]",
        "<sop>",
        "<|system|>",
        "<|user|>",
        "<|assistant|>",
        "<|observation|>",
    ),
    assistant_start="<|assistant|>",
    ignored_tail=("<|user|>", "<|observation|>"),
    reasoning_parser="glm45",
    tool_call_parser="glm47",
    clues=Clues(
        # Earlier models of these marks end their turns in the same way.
        tokens={"[gMASK]": None, "<sop>": None, "<|assistant|>": None, "<|observation|>": None}
    ),
)
_KIMI25: Final = Family(
    name="kimi25",
    template="kimi",
    fixed_kwargs=MappingProxyType({"preserve_thinking": True}),
    typescript_kwarg="tools_ts_str",
    segment_specials=_KIMI_MARKS,
    assistant_start="<|im_assistant|>",
    reasoning_parser="kimi_k2",
    tool_call_parser="kimi_k2_raw_id",
    clues=Clues(
        tokens={"<|im_middle|>": None, "<|im_assistant|>": None, "<|tool_call_begin|>": None},
        template=("tools_ts_str",),
    ),
)
_KIMI26: Final = Family(
    name="kimi26",
    fixed_kwargs=MappingProxyType({"preserve_thinking": True}),
    typescript_kwarg="tools_ts_str",
    segment_specials=_KIMI_MARKS,
    assistant_start="<|im_assistant|>",
    reasoning_parser="kimi_k2",
    tool_call_parser="kimi_k2_raw_id",
    clues=Clues(
        tokens={"<|im_middle|>": None, "<|im_assistant|>": None, "<|tool_call_begin|>": None},
        template=("tools_ts_str", "preserve_thinking"),
    ),
)
_MINIMAX_M25: Final = Family(
    name="minimax_m25",
    template="minimax",
    template_texts=MappingProxyType({"identity": "MiniMax-M2.5"}),
    fixed_kwargs=_KEEPS_THINKING,
    append_roles=_NO_SYSTEM,
    end_of_turn="[e~[",
    after_turn="\n",
    segment_specials=_MINIMAX_MARKS,
    assistant_start="]~b]ai",
    ignored_tail=("\n",),
    reasoning_parser="minimax-append-think",
    tool_call_parser="minimax-m2",
    clues=Clues(tokens={"]~b]": None, "]~!b[": None, "[e~[": None}, foreign=("MiniMax-M2.7",)),
)
_MINIMAX_M27: Final = Family(
    name="minimax_m27",
    template="minimax",
    template_texts=MappingProxyType({"identity": "MiniMax-M2.7"}),
    fixed_kwargs=_KEEPS_THINKING,
    append_roles=_NO_SYSTEM,
    end_of_turn="[e~[",
    after_turn="\n",
    segment_specials=_MINIMAX_MARKS,
    assistant_start="]~b]ai",
    ignored_tail=("\n",),
    reasoning_parser="minimax-append-think",
    tool_call_parser="minimax-m2",
    clues=Clues(tokens={"]~b]": None, "]~!b[": None, "[e~[": None}, template=("MiniMax-M2.7",)),
)
_DEEPSEEKV32: Final = Family(
    name="deepseekv32",
    template="deepseekv32",
    fixed_kwargs=MappingProxyType({"drop_thinking": False}),
    thinking=_DEEPSEEK_SWITCH,
    segment_specials=(_DEEPSEEK_USER, _DEEPSEEK_ASSISTANT),
    assistant_start=_DEEPSEEK_ASSISTANT,
    reasoning_parser="deepseek-v3",
    tool_call_parser="deepseekv32",
    clues=Clues(
        tokens={_DEEPSEEK_USER: 128803, _DEEPSEEK_ASSISTANT: 128804, "<think>": 128798},
        has_template=False,
    ),
)
_DEEPSEEKV4: Final = Family(
    name="deepseekv4",
    template="deepseekv4",
    fixed_kwargs=MappingProxyType({"drop_thinking": False}),
    thinking=_DEEPSEEK_SWITCH,
    append_roles=_NO_SYSTEM,
    segment_specials=(_DEEPSEEK_USER, _DEEPSEEK_ASSISTANT),
    assistant_start=_DEEPSEEK_ASSISTANT,
    ignored_tail=(_DEEPSEEK_ASSISTANT, "<think>", "</think>"),
    reasoning_parser="deepseek-v4",
    tool_call_parser="deepseekv4",
    clues=Clues(tokens={_DEEPSEEK_USER: 128803, _DEEPSEEK_ASSISTANT: 128804, "<think>": 128821}),
)
_INKLING: Final = Family(
    name="inkling",
    template="inkling",
    segment_specials=(
        "<|message_system|>",
        "<|message_user|>",
        "<|message_tool|>",
        "<|message_model|>",
    ),
    assistant_start="<|message_model|>",
    reasoning_parser="inkling",
    tool_call_parser="inkling",
    clues=Clues(
        tokens={
            "<|message_model|>": None,
            "<|content_thinking|>": None,
            "<|content_model_end_sampling|>": None,
        }
    ),
)
DEFAULT: Final = Family(name="default")

# Order counts: of families that fit equally well, the first is picked.
FAMILIES: Final[tuple[Family, ...]] = (
    _QWEN3,
    _QWEN35,
    _QWENNEXT,
    _NEMOTRON3,
    _GLM47,
    _KIMI25,
    _KIMI26,
    _MINIMAX_M25,
    _MINIMAX_M27,
    _DEEPSEEKV32,
    _DEEPSEEKV4,
    _INKLING,
    DEFAULT,
)


def family_of(name: str) -> Family:
    """The family of a name.

    Raises:
        SettingsError: There is none; the message lists the names.
    """
    for family in FAMILIES:
        if family.name == name:
            return family
    names = ", ".join([AUTO, *(family.name for family in FAMILIES)])
    raise SettingsError(f"no TITO family {name!r}: expected one of {names}")
