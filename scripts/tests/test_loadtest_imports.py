"""Each name that a load test imports from another of its files exists, and each such file belongs to
the same suite or to loadtest/lib: `make test` runs no load test."""

import ast
import pathlib
import unittest

LOADTEST = pathlib.Path(__file__).resolve().parents[2] / "loadtest"
LIBRARY = LOADTEST / "lib"


def module_files():
    """Returns the Python files of the load tests by the name under which they are imported."""
    files = {}
    for path in sorted(LOADTEST.rglob("*.py")):
        files.setdefault(path.stem, []).append(path)
    return files


def imported_modules(path):
    """Returns the names of the modules that a file imports."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            names.add(node.module)
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return names


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

    def test_suites_import_their_own_modules_and_those_of_the_library_only(self):
        files = module_files()
        foreign, checked = [], 0
        for path in (path for paths in files.values() for path in paths):
            for name in sorted(imported_modules(path) & set(files)):
                checked += 1
                if not {file.parent for file in files[name]} & {path.parent, LIBRARY}:
                    foreign.append(f"{path}: {name}")
        self.assertGreater(checked, 100)
        self.assertEqual(foreign, [])

    def test_modules_of_the_library_have_names_of_their_own(self):
        library = {path.stem for path in LIBRARY.glob("*.py")}
        suites = {path.stem for path in LOADTEST.rglob("*.py") if path.parent != LIBRARY}
        self.assertEqual(library & suites, set())


if __name__ == "__main__":
    unittest.main()
