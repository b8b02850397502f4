"""scripts/layouts.py reads the tables of types, and all notations of the specifications;
scripts/compare-layouts prints each difference once."""

import importlib.machinery
import importlib.util
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import layouts  # noqa: E402

# As until v1.7.0-alpha.13, since #5471, and since the specifications have their own SSZ library.
LISTED = """
| Name   | SSZ equivalent       | Description |
| ------ | -------------------- | ----------- |
| `Bits` | `BitVector[SIZE]`    | bits        |
| `Many` | `List[Part, 2 * SIZE]` | parts     |

| Name   | Value                 |
| ------ | --------------------- |
| `SIZE` | `Uint64(2**4)` (= 16) |

```python
class Part(Container):
    root: Bytes32  # a comment
    number: Uint64
```

```python
class Whole(ProgressiveContainer(active_fields=[1, 0] + [1] * 2)):
    bits: Bits
    # a comment
    parts: Many
    text: ProgressiveByteList
```
"""
CLASSES = LISTED.split("\n\n", 1)[1] + """
```python
class Bits(BitVector[SIZE]):
    \"\"\"
    Bits.
    \"\"\"
```

```python
class Many(
    List[Part, 2 * SIZE]
):
    \"\"\"
    Parts.
    \"\"\"
```
"""
PARAMETERS = """
| `SIZE` | `Uint64(2**4)` (= 16) |

```python
class Part(Container):
    root: Bytes32
    number: Uint64
```

```python
class Whole(ProgressiveContainer):
    ACTIVE_FIELDS = active_fields(width=4, gaps=(1,))

    bits: Bits
    parts: Many
    text: Text
```

```python
class Bits(BitVector):
    LENGTH = SIZE
```

```python
class Many(List[Part]):
    LIMIT = 2 * SIZE
```

```python
class Text(ProgressiveList[Byte]):
    pass
```
"""


def read(page):
    """The definitions of a specification whose only fork has this page."""
    with tempfile.TemporaryDirectory() as folder:
        checkout = Path(folder)
        (checkout / "specs/first").mkdir(parents=True)
        (checkout / "presets/minimal").mkdir(parents=True)
        (checkout / "specs/first/page.md").write_text(page)
        (checkout / "presets/minimal/first.yaml").write_text("# Preset\nSIZE: 8\n")
        definitions = layouts.Definitions()
        definitions.read_specification(checkout, "first", "minimal")
        return definitions


class Specifications(unittest.TestCase):
    def test_notations_of_all_versions_have_the_same_layouts(self):
        for page in (LISTED, CLASSES, PARAMETERS):
            definitions = read(page)
            self.assertEqual(definitions.named_by_fork, {"Part", "Whole"})
            part = ["Container", "root: ByteVector[32]", "number: uint64"]
            self.assertEqual(definitions.describe("Part"), part)
            whole = ["active fields 1011", "bits: Bitvector[8]", "parts: List[Part, 16]"]
            self.assertEqual(definitions.describe("Whole"), [*whole, "text: ProgressiveList[byte]"])


class Tables(unittest.TestCase):
    def test_layouts_of_all_forks_are_described(self):
        forks = layouts.forks()
        self.assertEqual((forks[0], forks[-1]), ("phase0", "heze"))
        definitions = layouts.Definitions()
        for fork in forks:
            definitions.read_table(fork, 1)
            lines = [definitions.describe(name) for name in definitions.containers]
            self.assertGreater(len(lines), 20)
        state = definitions.describe("BeaconState")
        self.assertIn("historical_roots: List[ByteVector[32], 16777216]", state)
        self.assertNotIn("BlindedBeaconBlock", definitions.containers)


def load_script():
    loader = importlib.machinery.SourceFileLoader(
        "compare_layouts", str(ROOT / "scripts/compare-layouts")
    )
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


class Differences(unittest.TestCase):
    def test_difference_is_printed_once_for_all_forks_and_presets_that_have_it(self):
        whole, part = ("Whole", "    - bits"), ("Part", "    + root")
        found = [
            ("gloas", "mainnet", whole),
            ("heze", "mainnet", whole),
            ("heze", "mainnet", part),
            ("gloas", "minimal", whole),
            ("heze", "minimal", whole),
        ]
        self.assertEqual(
            list(load_script().merge(found)),
            [
                "gloas, heze; mainnet, minimal: Whole",
                "    - bits",
                "heze; mainnet: Part",
                "    + root",
            ],
        )


if __name__ == "__main__":
    unittest.main()
