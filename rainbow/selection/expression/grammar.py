"""The grammar of expressions: text → Python's own syntax tree.

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

_OR, _AND, _NOT, _COMPARISON, _SUM, _TERM, _UNARY, _POWER = range(1, 9)  # from loosest to tightest

_COMPARISONS: dict[str, type[ast.cmpop]] = {
    "<": ast.Lt,
    "<=": ast.LtE,
    ">": ast.Gt,
    ">=": ast.GtE,
    "==": ast.Eq,
    "!=": ast.NotEq,
    "in": ast.In,
    "not": ast.NotIn,  # followed by in
}
_JUNCTIONS: dict[str, tuple[int, type[ast.boolop]]] = {"or": (_OR, ast.Or), "and": (_AND, ast.And)}
_BINARY: dict[str, tuple[int, type[ast.operator]]] = {
    "+": (_SUM, ast.Add),
    "-": (_SUM, ast.Sub),
    "*": (_TERM, ast.Mult),
    "/": (_TERM, ast.Div),
    "//": (_TERM, ast.FloorDiv),
    "%": (_TERM, ast.Mod),
    "**": (_POWER, ast.Pow),
}
_PREFIXES: dict[str, tuple[int, type[ast.unaryop]]] = {
    "not": (_NOT, ast.Not),
    "+": (_UNARY, ast.UAdd),
    "-": (_UNARY, ast.USub),
}
_LEVELS = {
    **dict.fromkeys(_COMPARISONS, _COMPARISON),
    **{sign: level for sign, (level, _) in (*_JUNCTIONS.items(), *_BINARY.items())},
}


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
    results: list[Token] = []
    at = 0
    while at < len(text):
        token = _token(text, at)
        at += len(token.text)
        if token.kind != "space":
            results.append(_respell(token))
    return [*results, Token("end", "", len(text) + 1)]


def _token(text: str, at: int) -> Token:
    match = _TOKEN.match(text, at)
    if match and match.lastgroup:
        return Token(match.lastgroup, match.group(), at + 1)
    if text[at] in "'\"":
        raise invalid("unterminated string, or an escape other than \\\\' \\\\\" \\\\\\\\", at + 1)
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
        raise invalid(f"unexpected {parser.token}", parser.token.column)
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
    """Precedence climbing over the tokens: few frames for each level, so that 64 levels never exhaust the stack."""

    def __init__(self, results: list[Token]) -> None:
        self._tokens = results
        self._at = 0
        self._nesting = 0  # expressions inside expressions
        self._operations = 0  # operations inside operations, which is how deep this parser recurses

    @property
    def token(self) -> Token:
        return self._tokens[self._at]

    @property
    def sign(self) -> str:
        return self.token.text if self.token.kind == "sign" else ""

    def step(self) -> Token:
        self._at += 1
        return self._tokens[self._at - 1]

    def take(self, sign: str) -> Token | None:
        """Step over the token and return it if it is this sign."""
        return self.step() if self.sign == sign else None

    def expect(self, sign: str) -> None:
        if not self.take(sign):
            raise invalid(f"expected {sign!r}, got {self.token}", self.token.column)

    def expression(self) -> ast.expr:
        self._nesting = self.deeper(self._nesting, MAX_DEPTH)
        node = self.operation(_OR)
        if sign := self.take("?"):
            body = self.expression()
            self.expect(":")
            node = _at(ast.IfExp(test=node, body=body, orelse=self.expression()), sign)
        elif sign := self.take("if"):
            test = self.operation(_OR)
            self.expect("else")
            node = _at(ast.IfExp(test=test, body=node, orelse=self.expression()), sign)
        self._nesting -= 1
        return node

    def deeper(self, depth: int, limit: int) -> int:
        if depth >= limit:
            raise invalid(f"the expression is deeper than {MAX_DEPTH}", self.token.column)
        return depth + 1

    def operation(self, level: int) -> ast.expr:
        """Read operands and the operators between them that bind at least as tightly as `level`."""
        # twice: in a * (b * (c * ...)) there is one for each parenthesis and one for each operator
        self._operations = self.deeper(self._operations, 2 * MAX_DEPTH)
        node = self.operand(level)
        while _LEVELS.get(self.sign, 0) >= level:
            if self.sign in _JUNCTIONS:
                node = self.junction(node)
            elif self.sign in _COMPARISONS:
                node = self.comparison(node)
            else:
                node = self.binary(node)
        self._operations -= 1
        return node

    def junction(self, remaining: ast.expr) -> ast.expr:
        sign = self.token
        level, op = _JUNCTIONS[sign.text]
        values = [remaining]
        while self.take(sign.text):
            values.append(self.operation(level + 1))
        return _at(ast.BoolOp(op=op(), values=values), sign)

    def comparison(self, remaining: ast.expr) -> ast.expr:
        first = self.token
        node = _at(ast.Compare(left=remaining, ops=[], comparators=[]), first)
        while op := _COMPARISONS.get(self.sign):
            if node.comparators and isinstance(node.comparators[-1], ast.Tuple):
                raise invalid(f"unexpected {self.token}", self.token.column)
            self.step()
            node.ops.append(op())
            if op is ast.NotIn:
                self.expect("in")
            node.comparators.append(self.options() if op in (ast.In, ast.NotIn) else self.operation(_SUM))
        return node

    def options(self) -> ast.expr:
        if self.sign not in ("(", "["):
            raise invalid("after in comes a list in parentheses", self.token.column)
        opening = self.step()
        values = self.listed(")" if opening.text == "(" else "]")
        return _at(ast.Tuple(elts=values, ctx=ast.Load()), opening)

    def binary(self, left: ast.expr) -> ast.expr:
        sign = self.step()
        level, op = _BINARY[sign.text]
        # from left to right, except powers: 2 ** 3 ** 2 is 2 ** 9, and 2 ** -1 is allowed
        right = self.operation(_UNARY if level == _POWER else level + 1)
        return _at(ast.BinOp(left=left, op=op(), right=right), sign)

    def operand(self, level: int) -> ast.expr:
        token = self.token
        if self.sign in _PREFIXES and (prefix := _PREFIXES[self.sign])[0] >= min(level, _UNARY):
            self.step()
            return _at(ast.UnaryOp(op=prefix[1](), operand=self.operation(prefix[0])), token)
        if self.take("("):
            node = self.expression()
            self.expect(")")
            return node
        if token.kind not in ("number", "text", "name"):
            raise invalid(f"expected a value, got {token}", token.column)
        self.step()
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
        """Read values between commas up to the closing sign; a comma may precede it."""
        values: list[ast.expr] = []
        while not self.take(closing):
            values.append(self.expression())
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
