"""Names that tests import from each other's files exist: pytest would report a missing one only when
the stage that collects the file runs, and without the file's tests."""

import ast
import pathlib
import unittest

TESTS = pathlib.Path(__file__).resolve().parents[2] / "tests"


def defined_names(tree):
    """The names that a module's top level binds."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names.update((alias.asname or alias.name).split(".")[0] for alias in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


class TestImports(unittest.TestCase):
    def test_names_imported_from_modules_of_the_tests_exist(self):
        trees = {path: ast.parse(path.read_text()) for path in TESTS.rglob("*.py")}
        names = {path: defined_names(tree) for path, tree in trees.items()}
        checked = 0
        for path, tree in trees.items():
            for node in ast.walk(tree):
                if not isinstance(node, ast.ImportFrom) or not node.module:
                    continue
                suffix = node.module.replace(".", "/") + ".py"
                modules = [other for other in trees if str(other).endswith("/" + suffix)]
                if not modules:
                    continue
                known = set().union(*(names[module] for module in modules))
                for alias in node.names:
                    checked += 1
                    where = f"{path.relative_to(TESTS)}:{node.lineno}"
                    is_known = alias.name == "*" or alias.name in known
                    self.assertTrue(is_known, f'{where}: {node.module} has no "{alias.name}"')
        self.assertGreater(checked, 500)


if __name__ == "__main__":
    unittest.main()
