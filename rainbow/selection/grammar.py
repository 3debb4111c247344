"""Text of an expression → Python's own syntax tree.

    expression  or [? expression : expression] | or if or else expression
    or          and {(or | "||") and}
    and         not {(and | &&) not}
    not         (not | !) not | comparison
    comparison  sum {(< | <= | > | >= | == | !=) sum} [[not] in "(" list ")"]
    sum         term {(+ | -) term}
    term        unary {(* | / | // | %) unary}
    unary       (+ | -) unary | power
    power       primary [** unary]
    primary     number | text | true | false | name | function "(" list ")" | "(" expression ")"

The rules are those of Python, with the signs of C as other spellings: && is and, || is or, ! is not. Names
may have dots and are one token. The parser works on tokens, so quoted text is never mistaken for a sign.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from rainbow.errors import SelectionError

N = TypeVar("N", bound=ast.expr)

MAX_LENGTH = 4096  # characters
MAX_DEPTH = 64  # of nesting, and of the tree

_TOKEN = re.compile(
    r"""(?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
      | (?P<text>'(?:[^'\\]|\\['"\\])*'|"(?:[^"\\]|\\['"\\])*")
      | (?P<name>[^\W\d]\w*(?:\.\w+)*)
      | (?P<sign>\*\*|//|==|!=|<=|>=|&&|\|\||[-+*/%<>!?:(),\[\]])
      | (?P<space>\s+)""",
    re.VERBOSE,
)
_SPELLINGS = {"&&": "and", "||": "or", "!": "not"}
_WORDS = {"and", "or", "not", "if", "else", "in"}
_TRUTHS = {"true": True, "false": False, "True": True, "False": False}
_HINTS = {"=": "to compare write ==", "^": "for powers write **", "&": "write && or and", "|": "write || or or"}
RESERVED = frozenset(_WORDS | set(_TRUTHS))

_COMPARISONS: dict[str, type[ast.cmpop]] = {
    "<": ast.Lt,
    "<=": ast.LtE,
    ">": ast.Gt,
    ">=": ast.GtE,
    "==": ast.Eq,
    "!=": ast.NotEq,
}
_SUMS: dict[str, type[ast.operator]] = {"+": ast.Add, "-": ast.Sub}
_TERMS: dict[str, type[ast.operator]] = {"*": ast.Mult, "/": ast.Div, "//": ast.FloorDiv, "%": ast.Mod}
_SIGNS: dict[str, type[ast.unaryop]] = {"+": ast.UAdd, "-": ast.USub}


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of the text: its kind (number, text, name, sign, end), spelling, and column from 1."""

    kind: str
    text: str
    column: int

    def __str__(self) -> str:
        return repr(self.text) if self.text else "the end"


def invalid(message: str, column: int) -> SelectionError:
    """Return the refusal of an expression at a column, counted from 1."""
    return SelectionError(f"column {column}: {message}", column=column)


def tokens(text: str) -> list[Token]:
    """Cut the text into tokens; words of the language and the spellings of C become signs."""
    if len(text) > MAX_LENGTH:
        raise invalid(f"the expression has {len(text)} characters, at most {MAX_LENGTH} are read", MAX_LENGTH + 1)
    found: list[Token] = []
    at = 0
    while at < len(text):
        token = _token(text, at)
        at += len(token.text)
        if token.kind != "space":
            found.append(_respell(token))
    return [*found, Token("end", "", len(text) + 1)]


def _token(text: str, at: int) -> Token:
    match = _TOKEN.match(text, at)
    if match and match.lastgroup:
        return Token(match.lastgroup, match.group(), at + 1)
    if text[at] in "'\"":
        raise invalid(
            "this text has no end, or a backslash before something else than a quote or a backslash", at + 1
        )
    hint = _HINTS.get(text[at])
    raise invalid(f"{text[at]!r} means nothing here" + (f": {hint}" if hint else ""), at + 1)


def _respell(token: Token) -> Token:
    if token.kind == "name" and token.text in _WORDS:
        return Token("sign", token.text, token.column)
    if token.kind == "sign" and token.text in _SPELLINGS:
        return Token("sign", _SPELLINGS[token.text], token.column)
    return token


def parse(text: str) -> ast.expr:
    """Return the tree of an expression; SelectionError names the column of the first fault."""
    parser = _Parser(tokens(text))
    tree = parser.expression()
    if parser.token.kind != "end":
        raise invalid(f"{parser.token} is not expected here", parser.token.column)
    _check_depth(tree)
    return tree


def _check_depth(tree: ast.expr) -> None:
    level: list[ast.AST] = [tree]
    for _ in range(MAX_DEPTH):
        level = [child for node in level for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
        if not level:
            return
    raise invalid(f"the expression is deeper than {MAX_DEPTH}", getattr(level[0], "col_offset", 0) + 1)


class _Parser:
    """Recursive descent over the tokens, one method per rule of the grammar."""

    def __init__(self, found: list[Token]) -> None:
        self._tokens = found
        self._at = 0
        self._depth = 0

    @property
    def token(self) -> Token:
        return self._tokens[self._at]

    def take(self, *signs: str) -> Token | None:
        """Step over the token and return it if it is one of these signs."""
        token = self.token
        if token.kind != "sign" or token.text not in signs:
            return None
        self._at += 1
        return token

    def expect(self, sign: str) -> None:
        if not self.take(sign):
            raise invalid(f"{sign!r} is expected here, not {self.token}", self.token.column)

    def nested(self, rule: Callable[[], ast.expr]) -> ast.expr:
        """Apply a rule one level deeper; what bounds the parser's own recursion."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise invalid(f"the expression is deeper than {MAX_DEPTH}", self.token.column)
        node = rule()
        self._depth -= 1
        return node

    # ── from loosest to tightest ────────────────────────────────────────────────────────────────────────────

    def expression(self) -> ast.expr:
        node = self.disjunction()
        if sign := self.take("?"):
            body = self.nested(self.expression)
            self.expect(":")
            return _at(ast.IfExp(test=node, body=body, orelse=self.nested(self.expression)), sign)
        if sign := self.take("if"):
            test = self.disjunction()
            self.expect("else")
            return _at(ast.IfExp(test=test, body=node, orelse=self.nested(self.expression)), sign)
        return node

    def disjunction(self) -> ast.expr:
        return self.junction("or", ast.Or(), lambda: self.junction("and", ast.And(), self.negation))

    def junction(self, word: str, op: ast.boolop, rule: Callable[[], ast.expr]) -> ast.expr:
        first = self.token
        values = [rule()]
        while self.take(word):
            values.append(rule())
        return values[0] if len(values) == 1 else _at(ast.BoolOp(op=op, values=values), first)

    def negation(self) -> ast.expr:
        if sign := self.take("not"):
            return _at(ast.UnaryOp(op=ast.Not(), operand=self.nested(self.negation)), sign)
        return self.comparison()

    def comparison(self) -> ast.expr:
        first, left = self.token, self.sum()
        ops: list[ast.cmpop] = []
        rights: list[ast.expr] = []
        while op := self.comparison_sign():
            ops.append(op)
            if isinstance(op, ast.In | ast.NotIn):  # a list is no value: it ends the chain
                rights.append(self.options())
                break
            rights.append(self.sum())
        return _at(ast.Compare(left=left, ops=ops, comparators=rights), first) if ops else left

    def comparison_sign(self) -> ast.cmpop | None:
        if sign := self.take(*_COMPARISONS):
            return _COMPARISONS[sign.text]()
        if self.take("in"):
            return ast.In()
        if self.take("not"):
            self.expect("in")
            return ast.NotIn()
        return None

    def options(self) -> ast.expr:
        opening = self.take("(", "[")
        if not opening:
            raise invalid("after in comes a list in parentheses", self.token.column)
        values = self.listed(")" if opening.text == "(" else "]")
        return _at(ast.Tuple(elts=values, ctx=ast.Load()), opening)

    def sum(self) -> ast.expr:
        return self.left_to_right(_SUMS, self.term)

    def term(self) -> ast.expr:
        return self.left_to_right(_TERMS, self.unary)

    def left_to_right(self, signs: dict[str, type[ast.operator]], rule: Callable[[], ast.expr]) -> ast.expr:
        node = rule()
        while sign := self.take(*signs):
            node = _at(ast.BinOp(left=node, op=signs[sign.text](), right=rule()), sign)
        return node

    def unary(self) -> ast.expr:
        if sign := self.take(*_SIGNS):
            return _at(ast.UnaryOp(op=_SIGNS[sign.text](), operand=self.nested(self.unary)), sign)
        return self.power()

    def power(self) -> ast.expr:
        base = self.primary()
        if sign := self.take("**"):
            return _at(ast.BinOp(left=base, op=ast.Pow(), right=self.nested(self.unary)), sign)
        return base

    def primary(self) -> ast.expr:
        token = self.token
        if self.take("("):
            node = self.nested(self.expression)
            self.expect(")")
            return node
        if token.kind not in ("number", "text", "name"):
            raise invalid(f"a value is expected here, not {token}", token.column)
        self._at += 1
        return self.name(token) if token.kind == "name" else _at(ast.Constant(value=_literal(token)), token)

    def name(self, token: Token) -> ast.expr:
        if token.text in _TRUTHS:
            return _at(ast.Constant(value=_TRUTHS[token.text]), token)
        if any(part.startswith("_") for part in token.text.split(".")):
            raise invalid(f"a name does not start with an underscore: {token.text}", token.column)
        name = _at(ast.Name(id=token.text, ctx=ast.Load()), token)
        if not self.take("("):
            return name
        return _at(ast.Call(func=name, args=self.listed(")"), keywords=[]), token)

    def listed(self, closing: str) -> list[ast.expr]:
        """Read values between commas up to the closing sign; a comma may stand before it."""
        values: list[ast.expr] = []
        while not self.take(closing):
            values.append(self.nested(self.expression))
            if not self.take(","):
                self.expect(closing)
                break
        return values


def _literal(token: Token) -> int | float | str:
    if token.kind == "text":
        return re.sub(r"\\(.)", r"\1", token.text[1:-1])
    if token.text.isdigit():
        return int(token.text)
    return float(token.text)


def _at(node: N, token: Token) -> N:
    node.lineno = node.end_lineno = 1
    node.col_offset = token.column - 1
    node.end_col_offset = node.col_offset + len(token.text)
    return node
