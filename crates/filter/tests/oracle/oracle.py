"""DataFusion as the oracle: random expressions over random columns, with its answers, as JSON.

Usage: oracle.py SEED COUNT OUT. The expressions avoid what docs/filters.md lists as different.
Where DataFusion ends a whole query for one row's sake, the rows that do so are found and marked.
"""

import json
import math
import random
import re
import sys

import datafusion
import pyarrow as pa

ROWS = 48
TYPES = {"INT": pa.int32(), "BIGINT": pa.int64(), "REAL": pa.float32(), "DOUBLE": pa.float64()}
NUMBERS = list(TYPES)
ANGLES = ["sin", "cos", "tan", "asin", "acos", "atan", "radians", "degrees"]
ONE_NUMBER = ["sqrt", "ln", "log10", "log2", "exp", "floor", "ceil", *ANGLES]


def columns(rng):
    """Two columns a type, and `zero` columns with -0, which are compared only."""

    def floats(special):
        values = [*special, 0.5, -2.5, 1e10, -1.0, 3.0, 20.25]
        return [rng.choice([None, *values, rng.uniform(-5, 30)]) for _ in range(ROWS)]

    def integers(bits):
        values = [0, 1, -1, 2, 3, 7, -(2 ** (bits - 1)), 2 ** (bits - 1) - 1]
        return [rng.choice([None, *values, rng.randint(-9, 9)]) for _ in range(ROWS)]

    table = {}
    special = [float("nan"), float("inf"), float("-inf"), 0.0]
    for copy in "ab":
        table[f"t.INT_{copy}"] = pa.array(integers(32), pa.int32())
        table[f"t.BIGINT_{copy}"] = pa.array(integers(64), pa.int64())
        table[f"t.REAL_{copy}"] = pa.array(floats(special), pa.float32())
        table[f"t.DOUBLE_{copy}"] = pa.array(floats([*special, 1e300]), pa.float64())
        flags = [rng.choice([None, True, False]) for _ in range(ROWS)]
        table[f"t.BOOLEAN_{copy}"] = pa.array(flags)
        texts = [None, "", "g", "r", "ab", "a%b", "lsst_i", "é", "G"]
        table[f"t.TEXT_{copy}"] = pa.array([rng.choice(texts) for _ in range(ROWS)])
    for kind in ("REAL", "DOUBLE"):
        zeros = [rng.choice([None, -0.0, 0.0, 1.0, -1.0, float("nan")]) for _ in range(ROWS)]
        table[f"t.zero_{kind}"] = pa.array(zeros, TYPES[kind])
    return pa.table(table)


def ordered(number):
    """Marks an operand whose order counts; see `for_datafusion`."""
    return f"⟦{number}⟧"


def for_filter(text):
    """The text without marks."""
    return text.replace("⟦", "(").replace("⟧", ")")


def for_datafusion(text):
    """DataFusion orders NaN with a sign bit, which x86 computes, below all numbers."""
    while "⟦" in text:
        text = re.sub(
            "⟦([^⟦⟧]*)⟧", r"(CASE WHEN isnan(\1) THEN abs(\1) ELSE (\1) END)", text, count=1
        )
    return text


class Expressions:
    """Random expressions of a type."""

    def __init__(self, rng):
        self.rng = rng

    def column(self, kind):
        """One of the two columns of a type."""
        return f'"t.{kind}_{self.rng.choice("ab")}"'

    def literal(self):
        """A number."""
        return self.rng.choice(
            ["0", "1", "2", "-3", "7", "0.5", "2.0", "-1.5", "1e3", "2147483648", "100"]
        )

    def number(self, depth):
        """A number, of expressions nested so deeply at most."""
        pick = self.rng.randrange(17) if depth > 0 else self.rng.randrange(3)
        number = lambda: self.number(depth - 1)  # noqa: E731
        if pick < 2:
            return self.column(self.rng.choice(NUMBERS))
        if pick == 2:
            return self.literal()
        if pick < 8:
            return f"({number()} {self.rng.choice('+-*/%')} {number()})"
        if pick < 11:
            return f"{self.rng.choice(ONE_NUMBER)}({number()})"
        if pick == 11:
            kind = self.rng.choice(NUMBERS)
            cast = self.rng.choice(["CAST", "TRY_CAST"])
            inner = self.rng.choice([number, lambda: self.boolean(depth - 1)])()
            return f"{cast}({inner} AS {kind})"
        if pick == 12:
            name = self.rng.choice(["greatest", "least", "coalesce"])
            arg = number if name == "coalesce" else lambda: ordered(self.without_minus_0(depth))
            return f"{name}({', '.join(arg() for _ in range(3))})"
        if pick == 13:
            return f"CASE WHEN {self.boolean(depth - 1)} THEN {number()} ELSE {number()} END"
        if pick == 14:
            return self.rng.choice([f"abs({number()})", f"round({number()})", f"(- {number()})"])
        if pick == 15:
            left, right = (ordered(self.without_minus_0(depth)) for _ in range(2))
            case = f"CASE {left} WHEN {right} THEN {number()} WHEN 2 THEN {number()} END"
            return self.rng.choice([case, f"nullif({left}, {right})"])
        return self.rng.choice([f"power({number()}, {number()})", f"atan2({number()}, {number()})"])

    def without_minus_0(self, depth):
        """For what distinguishes -0 from 0 in DataFusion, unlike its comparisons."""
        if self.rng.randrange(4) == 0:
            return self.column(self.rng.choice(["INT", "BIGINT"]))
        return f"({self.number(depth - 1)} + 0)"

    def comparison(self, depth):
        """Two operands of one sort: numbers, texts, booleans or zeros."""
        operator = self.rng.choice(["=", "<>", "<", "<=", ">", ">="])
        kind = self.rng.randrange(6)
        if kind < 3:
            left, right = self.number(depth - 1), self.number(depth - 1)
            return f"{ordered(left)} {operator} {ordered(right)}"
        if kind == 3:
            other = self.rng.choice([self.column("TEXT"), "'g'"])
            return f"{self.column('TEXT')} {operator} {other}"
        if kind == 4:
            return f"{self.column('BOOLEAN')} {operator} {self.column('BOOLEAN')}"
        zero = self.rng.choice(['"t.zero_REAL"', '"t.zero_DOUBLE"'])
        other = self.rng.choice(["0", "0.0", '"t.zero_REAL"', '"t.zero_DOUBLE"', "1"])
        return f"{zero} {operator} {other}"

    def boolean(self, depth):
        """A boolean, of expressions nested so deeply at most."""
        pick = self.rng.randrange(14) if depth > 0 else self.rng.choice([0, 2])
        boolean = lambda: self.boolean(depth - 1)  # noqa: E731
        if pick == 0:
            return self.column("BOOLEAN")
        if pick < 5:
            return f"({self.comparison(max(depth, 1))})"
        if pick < 8:
            return f"({boolean()} {self.rng.choice(['AND', 'OR'])} {boolean()})"
        if pick == 8:
            return f"(NOT {boolean()})"
        if pick == 9:
            tests = ["NULL", "NOT NULL"]
            return f"({self.number(depth - 1)} IS {self.rng.choice(tests)})"
        if pick == 10:
            tests = ["TRUE", "NOT TRUE", "FALSE", "NOT FALSE", "UNKNOWN", "NOT UNKNOWN"]
            return f"(({boolean()}) IS {self.rng.choice(tests)})"
        if pick == 11:
            low, high = self.literal(), self.literal()
            negation = self.rng.choice(["", "NOT "])
            return f"({ordered(self.number(depth - 1))} {negation}BETWEEN {low} AND {high})"
        if pick == 12:
            values = [self.literal() for _ in range(self.rng.choice([1, 2, 5]))]
            values += self.rng.choice([[], [], ["NULL"]])
            negation = self.rng.choice(["", "NOT "])
            return f"({ordered(self.without_minus_0(depth))} {negation}IN ({', '.join(values)}))"
        pattern = self.rng.choice(["g", "%", "_", "a%", "%b", "a\\%b", "lsst\\__", "%s%i", ""])
        word = self.rng.choice(["LIKE", "NOT LIKE", "ILIKE"])
        return f"({self.column('TEXT')} {word} '{pattern}')"


def context(table):
    """A session that has the table as `alerts`, without the optimiser.

    It removes operations whose result does not matter, and so some that fail: `1 / n > 1 AND FALSE`
    does not fail for n = 0.
    """
    config = datafusion.SessionConfig().set("datafusion.optimizer.max_passes", "0")
    session = datafusion.SessionContext(config)
    session.register_record_batches("alerts", [table.to_batches()])
    return session


def evaluate(table, expression):
    """The type and the values by row, with "error" for rows that end the query."""
    try:
        result = context(table).sql(f"SELECT {expression} AS x FROM alerts").to_arrow_table()
        return str(result.schema.field(0).type), result.column(0).to_pylist()
    except Exception:
        if table.num_rows <= 1:
            return None, ["error"] * table.num_rows
        half = table.num_rows // 2
        first, left = evaluate(table.slice(0, half), expression)
        second, right = evaluate(table.slice(half), expression)
        return first or second, left + right


def plain(value):
    """JSON has no NaN and no infinity."""
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    return value


def main():
    """Writes the columns, and the expressions with their values."""
    seed, count, out = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    rng = random.Random(seed)
    table = columns(rng)
    expressions = Expressions(rng)
    cases = []
    for number in range(count):
        is_condition = number % 2 == 0
        depth = rng.choice([1, 2, 3, 4])
        text = expressions.boolean(depth) if is_condition else expressions.number(depth)
        kind, values = evaluate(table, for_datafusion(text))
        case = {"text": for_filter(text), "type": kind, "values": [plain(v) for v in values]}
        cases.append(case)
    names = {field.name: str(field.type) for field in table.schema}
    data = {name: [plain(v) for v in table.column(name).to_pylist()] for name in names}
    with open(out, "w", encoding="utf-8") as file:
        json.dump({"types": names, "columns": data, "cases": cases}, file)


if __name__ == "__main__":
    main()
