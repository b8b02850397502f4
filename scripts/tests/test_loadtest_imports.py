"""Each name that a load test imports from another of its files exists: `make test` runs no load test."""

import ast
import pathlib
import unittest

LOADTEST = pathlib.Path(__file__).resolve().parents[2] / "loadtest"


def module_files():
    """Returns the Python files of the load tests by the name under which they are imported."""
    files = {}
    for path in sorted(LOADTEST.rglob("*.py")):
        files.setdefault(path.stem, []).append(path)
    return files


def defined_names(path):
    """Returns the names that a module's top level defines or imports."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names |= {alias.asname or alias.name for alias in node.names}
    return names


class LoadtestImports(unittest.TestCase):
    def test_imported_names_exist(self):
        files = module_files()
        missing, checked = [], 0
        for path in (path for paths in files.values() for path in paths):
            for node in ast.walk(ast.parse(path.read_text())):
                if not isinstance(node, ast.ImportFrom) or node.module not in files:
                    continue
                known = set().union(*map(defined_names, files[node.module]))
                checked += 1
                missing += [f"{path}: {node.module}.{alias.name}" for alias in node.names if alias.name not in known]
        self.assertGreater(checked, 50)
        self.assertEqual(missing, [])


if __name__ == "__main__":
    unittest.main()
