"""Errors of definitions, with the texts of the kernel's error_log.

Codes are those of the kernel (kernel/trace/trace_probe.h, ERRORS) without ``TP_ERR_``. Compare
codes, because texts differ between kernels. The codes in :data:`STRICT` are this package's own.
"""

from __future__ import annotations

from usdt.base.errors import LanguageError

__all__ = ("MESSAGES", "STRICT", "DefinitionError")

MESSAGES = {
    "ARG_NAME_TOO_LONG": "Argument name is too long",
    "ARG_TOO_LONG": "Argument expression is too long",
    "ARRAY_NO_CLOSE": "Array is not closed",
    "ARRAY_TOO_BIG": "Array number is too big",
    "BAD_ADDR_SUFFIX": "Invalid probed address suffix",
    "BAD_ARG_NAME": "Argument name must follow the same rules as C identifiers",
    "BAD_ARG_NUM": "Invalid argument number",
    "BAD_ARRAY_NUM": "Invalid array size",
    "BAD_ARRAY_SUFFIX": "Array has wrong suffix",
    "BAD_BITFIELD": "Invalid bitfield",
    "BAD_DEREF_OFFS": "Invalid dereference offset",
    "BAD_EVENT_NAME": "Event name must follow the same rules as C identifiers",
    "BAD_FETCH_ARG": "Invalid fetch argument",
    "BAD_FILE_OFFS": "Invalid file offset value",
    "BAD_GROUP_NAME": "Group name must follow the same rules as C identifiers",
    "BAD_HYPHEN": "Failed to parse single hyphen. Forgot '>'?",
    "BAD_IMM": "Invalid immediate value",
    "BAD_MAXACT": "Invalid maxactive number",
    "BAD_MAXACT_TYPE": "Maxactive is only for function exit",
    "BAD_MEM_ADDR": "Invalid memory address",
    "BAD_PROBE_ADDR": "Invalid probed address or symbol",
    "BAD_REFCNT": "Invalid reference counter offset",
    "BAD_REFCNT_SUFFIX": "Reference counter has wrong suffix",
    "BAD_REG_NAME": "Invalid register name",
    "BAD_RETPROBE": "Retprobe address must be an function entry",
    "BAD_STACK_NUM": "Invalid stack number",
    "BAD_STRING": "String accepts only memory argument",
    "BAD_SYMSTRING": "Symbol String doesn't accept data/userdata",
    "BAD_TP_NAME": "Invalid character in tracepoint name",
    "BAD_TYPE": "Unknown type is specified",
    "BAD_UPROBE_OFFS": "Invalid uprobe offset",
    "BAD_VAR": "Invalid $-variable specified",
    "COMM_CANT_DEREF": "$comm can not be dereferenced",
    "DEREF_NEED_BRACE": "Dereference needs a brace",
    "DEREF_OPEN_BRACE": "Dereference brace is not closed",
    "DOUBLE_ARGS": "$arg* can be used only once in the parameters",
    "EVENT_TOO_BIG": "Event too big (too many fields?)",
    "EVENT_TOO_LONG": "Event name is too long",
    "FILE_ON_KPROBE": "File offset is not available with kprobe",
    "GROUP_TOO_LONG": "Group name is too long",
    "IMMSTR_NO_CLOSE": "String is not closed with '\"'",
    "MAXACT_TOO_BIG": "Maxactive is too big",
    "NEED_STRING_TYPE": "$comm and immediate-string only accepts string type",
    "NOFENTRY_ARGS": "$arg* can be used only on function entry or exit",
    "NOSUP_BTFARG": "BTF is not available or not supported",
    "NO_ARG_BODY": "No argument expression",
    "NO_ARG_NAME": "Argument name is not specified",
    "NO_BTF_FIELD": "This field is not found.",
    "NO_EP_FILTER": "No filter rule after 'if'",
    "NO_EVENT_INFO": "This requires both group and event name to attach",
    "NO_EVENT_NAME": "Event name is not specified",
    "NO_GROUP_NAME": "Group name is not specified",
    "REFCNT_OPEN_BRACE": "Reference counter brace is not closed",
    "RETVAL_ON_PROBE": "$retval is not available on probe",
    "SYM_ON_UPROBE": "Symbol is not available with uprobe",
    "TOO_MANY_ARGS": "Too many arguments are specified",
    "TOO_MANY_OPS": "Dereference is too much nested",
    "USED_ARG_NAME": "This argument name is already used",
}

#: Errors that error_log does not have. The kernel refuses some of these lines with no such text,
#: and accepts others with another meaning.
STRICT = {
    "BAD_SYMBOL": "A symbol is a name, which '+OFFSET' or '-OFFSET' may follow",
    "JUNK": "Unknown characters after the probe type; only ':' and a name may follow",
    "JUNK_AFTER_BRACE": "The kernel would ignore the characters after ')'",
    "NO_COMMAND": "A definition begins with p, r, e, f, t or -",
    "NO_DELETE_NAME": "A deletion needs the name of its event: '-:GROUP/EVENT'",
    "NO_PLACE": "The probed address or symbol is missing",
    "NO_SUCH_KIND": "This kernel has no probe events of this kind",
    "NO_SYMBOL": "A symbol is a name, or 'MODULE:NAME' for one of a module",
    "NO_UPROBE_OFFS": "':OFFSET' must follow the name of a file",
    "LINE_TOO_LONG": "The kernel accepts lines of at most 4094 characters",
}


class DefinitionError(LanguageError):
    """A definition that the kernel would refuse, or would interpret differently.

    Attributes:
        text: the line with normalized white space; ``column`` is a position in it.
        column: 0-based position of error_log's caret.
        reason: the text of the error, as in error_log.
        code: the kernel's name of the error, such as ``BAD_FETCH_ARG``.
    """

    def __init__(self, line: str, position: int, code: str) -> None:
        self.code = code
        super().__init__(line, position, MESSAGES.get(code) or STRICT[code])
