"""Layouts of SSZ containers as the tables in shared-core/src/ssz/forks and the text of the
consensus specifications define them."""

import ast
import operator
import re
from pathlib import Path

TABLES = Path(__file__).resolve().parents[1] / "shared-core/src/ssz"

# Names of the specifications' Python classes for types that the tables name in lower case.
BASIC = {
    "boolean": "boolean",
    "Boolean": "boolean",
    "byte": "byte",
    "Byte": "byte",
    **{f"{kind}int{bits}": f"uint{bits}" for kind in "uU" for bits in (8, 16, 32, 64, 128, 256)},
}
GENERIC = {
    "BitList": "Bitlist",
    "BitVector": "Bitvector",
    "ProgressiveBitList": "ProgressiveBitlist",
}
# Classes with a parameter that later versions of the specifications state below the class.
PARAMETERS = {"LENGTH", "LIMIT"}
OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: operator.pow,
}


def forks():
    """Names of the forks, in their order."""
    text = (TABLES / "schema/fork.rs").read_text().split("forks! {", 1)[1].split("\n}", 1)[0]
    return re.findall(r'^    \w+ "(\w+)",$', text, flags=re.M)


def active_fields(width, gaps=()):
    return [int(at not in gaps) for at in range(width)]


class Definitions:
    """Constants, names of types, and containers of a fork and those before it."""

    def __init__(self):
        self.constants = {}
        self.types = {}
        # fields by their name, and the list of active fields or `None`
        self.containers = {}
        # names of the containers that the newest fork defines
        self.named_by_fork = set()

    def read_table(self, fork, column):
        """Reads a table of this project; `column` is the preset's in lists of constants."""
        text = (TABLES / f"forks/{fork}.types").read_text()
        lines = text.split("\n")
        for at, line in enumerate(lines):
            if deleted := re.fullmatch(r"del (\w+)", line):
                self.containers.pop(deleted[1], None)
                self.types.pop(deleted[1], None)
            elif named := re.fullmatch(r"(\w+) = (.+)", line):
                name, value = named[1], named[2]
                if name.isupper():
                    values = value.split(",")
                    self.constants[name] = values[column if len(values) > 1 else 0]
                else:
                    self.types[name] = value
            elif head := re.fullmatch(r"class (\w+)\((.+)\):", line):
                self.read_container(head[1], head[2], class_body(lines, at))

    def read_specification(self, checkout, fork, preset):
        """Reads the documents and the preset of a fork."""
        self.named_by_fork = set()
        for page in sorted((checkout / "specs" / fork).rglob("*.md")):
            text = page.read_text()
            self.read_markdown_tables(text)
            for block in re.findall(r"^```python\n(.*?)^```", text, flags=re.M | re.S):
                self.read_classes(block)
        numbers = (checkout / f"presets/{preset}/{fork}.yaml").read_text()
        self.constants |= dict(re.findall(r"^([A-Z]\w+): (\d+)$", numbers, flags=re.M))

    def read_markdown_tables(self, text):
        """Reads constants, and the types that earlier versions of the specifications list."""
        is_type = False
        for line in text.split("\n"):
            cells = [cell.strip().replace("`", "") for cell in line.split("|")[1:-1]]
            if len(cells) < 2:
                is_type = False
            elif cells[1] == "SSZ equivalent":
                is_type = True
            elif is_type and re.fullmatch(r"[A-Z]\w+", cells[0]):
                self.define_type(cells[0], cells[1])
            elif re.fullmatch(r"[A-Z][A-Z0-9_]+", cells[0]):
                result = re.search(r"\(= ?([\d,]+)\)", cells[1])
                value = result[1].replace(",", "") if result else cells[1]
                self.constants[cells[0]] = value

    def read_classes(self, block):
        # the base of a class may be a line of its own
        block = re.sub(r"^(class \w+\()\n +(.+?),?\n(\):)$", r"\1\2\3", block, flags=re.M)
        lines = block.split("\n")
        for at, line in enumerate(lines):
            if head := re.fullmatch(r"class (\w+)\((.+)\):", line):
                name, base, body = head[1], head[2], class_body(lines, at)
                if re.match(r"(Progressive)?Container\b", base):
                    self.types.pop(name, None)
                    self.read_container(name, base, body)
                    self.named_by_fork.add(name)
                else:
                    self.define_type(name, parameterized_base(base, body))

    def define_type(self, name, value):
        self.containers.pop(name, None)
        self.types[name] = value

    def read_container(self, name, base, body):
        fields, active = {}, None
        if base == name:
            fields, active = self.containers[name]
            fields = dict(fields)
        elif base in self.containers:
            fields = dict(self.containers[base][0])
        elif listed := re.fullmatch(r"ProgressiveContainer\(active_fields=(.+)\)", base):
            active = evaluate_list(listed[1])
        inherited = len(fields)
        for line in body:
            if field := re.fullmatch(r'(\w+)(?: "\w+")?: (.+)', line):
                fields[field[1]] = field[2]
            elif line.startswith("ACTIVE_FIELDS = "):
                active = evaluate_layout(line.removeprefix("ACTIVE_FIELDS = "))
        if active is not None and inherited:
            active = active + [1] * (len(fields) - inherited)
        self.containers[name] = (fields, active)

    def describe(self, name):
        """The container as lines: its active fields, and each field with its type."""
        fields, active = self.containers[name]
        head = "Container" if active is None else f"active fields {''.join(map(str, active))}"
        types = [f"{field}: {self.canonical(ast.parse(of).body[0].value)}"
                 for field, of in fields.items()]
        return [head, *types]

    def canonical(self, node):
        """A type without the names of other types, except names of containers."""
        if isinstance(node, ast.Name):
            name = node.id
            if name in self.containers:
                return name
            if name in self.types:
                return self.canonical(ast.parse(self.types[name]).body[0].value)
            if octets := re.fullmatch(r"Bytes(\d+)", name):
                return f"ByteVector[{octets[1]}]"
            if name == "ProgressiveByteList":
                return "ProgressiveList[byte]"
            return GENERIC.get(name) or BASIC.get(name) or name
        base = GENERIC.get(node.value.id, node.value.id)
        arguments = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if base.startswith(("Bit", "Byte")):
            return f"{base}[{self.number(arguments[0])}]"
        parts = [self.canonical(arguments[0]), *(str(self.number(n)) for n in arguments[1:])]
        return f"{base}[{', '.join(parts)}]"

    def number(self, node):
        """The value of an expression of constants."""
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name | ast.Attribute):
            name = node.id if isinstance(node, ast.Name) else node.attr
            return self.number(ast.parse(self.constants[name].strip()).body[0].value)
        if isinstance(node, ast.BinOp):
            return OPERATORS[type(node.op)](self.number(node.left), self.number(node.right))
        if isinstance(node, ast.Call):
            value = self.number(node.args[0])
            return value.bit_length() - 1 if node.func.id == "floorlog2" else value
        raise ValueError(ast.unparse(node))


def class_body(lines, at):
    """The lines of a class, without comments and documentation."""
    body = []
    for line in lines[at + 1 :]:
        if line and not line.startswith("    "):
            break
        body.append(line.split("#")[0].strip())
    text = re.sub(r'""".*?"""', "", "\n".join(body), flags=re.S)
    return [line for line in text.split("\n") if line]


def parameterized_base(base, body):
    """A generic class with the parameter that is stated below it."""
    stated = [line.split(" = ", 1) for line in body if " = " in line]
    stated = [value for name, value in stated if name in PARAMETERS]
    if not stated:
        return base
    return f"{base[:-1]}, {stated[0]}]" if base.endswith("]") else f"{base}[{stated[0]}]"


def evaluate_list(text):
    """The value of `[1] * 3 + [0, 1]`."""
    return evaluate(ast.parse(text, mode="eval").body)


def evaluate(node):
    if isinstance(node, ast.List):
        return [element.value for element in node.elts]
    if isinstance(node, ast.Constant):
        return node.value
    return OPERATORS[type(node.op)](evaluate(node.left), evaluate(node.right))


def evaluate_layout(text):
    """The value of `active_fields(width=13, gaps=(1, 6))`."""
    call = ast.parse(text, mode="eval").body
    arguments = {word.arg: ast.literal_eval(word.value) for word in call.keywords}
    return active_fields(**arguments)
