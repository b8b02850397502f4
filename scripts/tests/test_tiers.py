"""Tests of tests/tiers.py: `make test` runs a part of the rows and combinations, in which each value,
or each pair of values, occurs."""

import importlib.util
import itertools
import pathlib
import types
import unittest
from unittest import mock

TIERS = pathlib.Path(__file__).resolve().parents[2] / "tests/tiers.py"
FACTORS = [["a", "b", "c"], [0, 1], ["w", "x", "y", "z"], [True, False]]
COMBINATIONS = list(itertools.product(*FACTORS))
ROWS = [types.SimpleNamespace(name=f"row {number}") for number in range(300)]
DIVISIONS = ["whole", "bytes", "random"]


def load_tiers(tier, seed="0"):
    """Loads the module as in the tests of a tier."""
    spec = importlib.util.spec_from_file_location("tiers_under_test", TIERS)
    module = importlib.util.module_from_spec(spec)
    with mock.patch.dict("os.environ", {"SSZIP_TIER": tier}):
        spec.loader.exec_module(module)
    module.os = types.SimpleNamespace(environ={"SSZIP_SEED": seed})
    return module


def pairs_of(combinations):
    """The pairs of values, with their places in a combination."""
    return {pair for values in combinations for pair in itertools.combinations(enumerate(values), 2)}


class TestTier(unittest.TestCase):
    """`make test` and `make quick`."""

    def setUp(self):
        self.tiers = load_tiers("test")

    def test_few_are_chosen_in_both_tiers(self):
        for tiers in (self.tiers, load_tiers("quick")):
            self.assertEqual(tiers.times(3, 10), 3)
            self.assertEqual(tiers.by_tier(["a"], ["a", "b"]), ["a"])
            self.assertEqual(tiers.seeds(2, 6), [0, 1])

    def test_alternate_combinations_have_each_value_of_a_factor(self):
        chosen = self.tiers.alternate(*FACTORS)
        self.assertEqual(len(chosen), len(COMBINATIONS) // 2)
        for place, values in enumerate(FACTORS):
            self.assertEqual({values[place] for values in chosen}, set(values))

    def test_pairwise_combinations_have_each_pair_of_values(self):
        for factors in (FACTORS, FACTORS[:2], [["a"], [0, 1]], FACTORS[::-1]):
            chosen = self.tiers.pairwise(*factors)
            self.assertEqual(pairs_of(chosen), pairs_of(itertools.product(*factors)))
            self.assertEqual(len(set(chosen)), len(chosen))
        self.assertLess(len(self.tiers.pairwise(*FACTORS)), len(COMBINATIONS) // 2)

    def test_row_has_one_division_and_another_one_on_other_hosts(self):
        first = self.tiers.rows_with_divisions(ROWS, DIVISIONS)
        second = self.tiers.rows_with_divisions(ROWS, DIVISIONS, first=1)
        for pairs in (first, second):
            self.assertEqual([row for row, _ in pairs], ROWS)
            self.assertEqual({division for _, division in pairs}, set(DIVISIONS))
        self.assertTrue(all(one != other for (_, one), (_, other) in zip(first, second, strict=True)))

    def test_division_of_a_row_does_not_depend_on_other_rows(self):
        pairs = self.tiers.rows_with_divisions(ROWS, DIVISIONS)
        self.assertEqual(self.tiers.rows_with_divisions(ROWS[7:], DIVISIONS), pairs[7:])

    def test_third_of_the_rows_is_chosen_by_their_names(self):
        chosen = self.tiers.one_row_in(3, ROWS)
        self.assertTrue(60 < len(chosen) < 140, len(chosen))
        self.assertTrue(all(row in ROWS for row in chosen))


class TestAll(unittest.TestCase):
    """`make test-all`."""

    def setUp(self):
        self.tiers = load_tiers("all")

    def test_helpers_choose_everything(self):
        self.assertEqual(self.tiers.times(3, 10), 10)
        self.assertEqual(self.tiers.by_tier(["a"], ["a", "b"]), ["a", "b"])
        self.assertEqual(self.tiers.alternate(*FACTORS), COMBINATIONS)
        self.assertEqual(self.tiers.pairwise(*FACTORS), COMBINATIONS)
        self.assertEqual(self.tiers.one_row_in(3, ROWS), ROWS)
        expected = list(itertools.product(ROWS, DIVISIONS))
        self.assertEqual(self.tiers.rows_with_divisions(ROWS, DIVISIONS), expected)

    def test_new_seeds_are_added_to_the_fixed_ones(self):
        self.assertEqual(self.tiers.seeds(2, 4), [0, 1, 2, 3])
        self.assertEqual(load_tiers("all", seed="700").seeds(2, 4), [0, 1, 2, 3, 700, 701])


class RowIds(unittest.TestCase):
    def test_id_is_the_name_of_a_row_function_or_text(self):
        tiers = load_tiers("test")
        self.assertEqual(tiers.row_id(ROWS[0]), "row 0")
        self.assertEqual(tiers.row_id(pairs_of), "pairs_of")
        self.assertEqual(tiers.row_id("whole"), "whole")


if __name__ == "__main__":
    unittest.main()
