"""The runner of nginx's own tests sees what differs, with a suite made up here."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

RUNNER = Path(__file__).parents[2] / "tests/foreign/nginx-tests/run.py"

# What the runner and its client need of Test::Nginx; an echo for a server.
LIBRARY = r"""
package Test::Nginx;
use base qw/ Exporter /;
use Compress::Zlib;
our @EXPORT = qw/ http_get /;

sub http_get($;%) {
	my ($uri, %extra) = @_;
	return http("GET $uri HTTP/1.1\nHost: localhost\n\n", %extra);
}

sub http($;%) { return http_end(http_start($_[0])); }

sub http_start($;%) { my ($request) = @_; return \$request; }

sub http_end($;%) {
	my ($s) = @_;
	return "HTTP/1.1 200 OK\r\n\r\nplain" if $$s !~ /^Accept-Encoding: gzip$/m;
	my $coded = Compress::Zlib::memGzip('was coded');
	my $next = $$s =~ /pipelined/ ? "HTTP/1.1 204 No Content\r\n\r\n" : '';
	return "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n"
		. "Content-Length: " . length($coded) . "\r\n\r\n$coded$next"
		if $$s !~ /cut|chunked/;
	return "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n"
		. "Transfer-Encoding: chunked\r\n\r\n"
		. sprintf("%x\r\n", length $coded) . "$coded\r\n0\r\n\r\n$next"
		if $$s =~ /chunked/;
	return "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n"
		. "Transfer-Encoding: chunked\r\n\r\n"
		. sprintf("%x\r\n", length $coded) . substr($coded, 0, 15);
}

1;
"""

# A test that reports whether sszip, its cache and a client that accepts gzip are present.
TEST = r"""
use Test::More;
use lib 'lib';
use Test::Nginx;
my $http = $ENV{TEST_NGINX_GLOBALS_HTTP};
plan(tests => 5);
ok(1, 'always');
ok($http !~ /sszip on/, 'off');
ok($http !~ /sszip_cache on/, 'no cache');
like(http_get('/'), qr/\r\n\r\nplain/, 'no gzip');
SKIP: { skip 'here', 1 if $http =~ /sszip on/; ok(1); }
"""

# What gzip does in the same way is no difference; a file that dies has no tests.
CODED = r"""
use Test::More;
use lib 'lib';
use Test::Nginx;
my $http = $ENV{TEST_NGINX_GLOBALS_HTTP};
plan(tests => 6);
ok($http !~ /gzip on|sszip/ , 'ranges') if $ENV{PERL5OPT};
ok(1, 'ranges') if !$ENV{PERL5OPT};
my $r = http_get('/');
ok($http !~ /sszip/ || !$ENV{PERL5OPT} || $r =~ /\AHTTP\/1.1 200 OK\r\nContent-Length: 9\r\n\r\nwas coded\z/, 'decoded');
for my $uri (qw! /pipelined /pipelined-chunked !) {
	$r = http_get($uri);
	ok($http !~ /sszip/ || !$ENV{PERL5OPT} || $r =~ /was coded(\r\n0\r\n\r\n)?HTTP\/1.1 204 No Content\r\n\r\n\z/, "next of $uri");
}
$r = http_get('/cut');
ok($http !~ /sszip/ || !$ENV{PERL5OPT} || $r !~ /\r\n0\r\n/, 'no last chunk');
die if $http =~ /sszip_cache on/;
ok(1, 'lives');
"""


class Runner(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = Path(holder.name)
        (self.folder / "lib/Test").mkdir(parents=True)
        (self.folder / "lib/Test/Nginx.pm").write_text(LIBRARY)
        (self.folder / "module.so").write_text("")

    def run_suite(self, *more, nginx="/bin/true", **files):
        for name, text in files.items():
            (self.folder / f"{name}.t").write_text(text)
        (self.folder / "explained.toml").write_text(EXPLAINED)
        command = [sys.executable, RUNNER, "--suite", self.folder, "--nginx", nginx]
        command += ["--module", self.folder / "module.so", "--explained", self.folder / "explained.toml"]
        done = subprocess.run([*command, *more], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout.splitlines(), done.stderr

    def test_differences_are_printed(self):
        status, lines, _ = self.run_suite("--mode", "on", "--mode", "cache", seen=TEST)
        self.assertEqual(status, 1)
        self.assertEqual(
            lines,
            [
                "seen.t, on: off: ok, now not ok",
                "seen.t, on: no name: ok, now skip",
                "seen.t, cache: off: ok, now not ok",
                "seen.t, cache: no cache: ok, now not ok",
                "seen.t, cache: no name: ok, now skip",
                "1 files, 0 skipped, 5 tests, 0 explained, 0 unsteady, 5 unexplained",
            ],
        )

    def test_explained_difference_is_counted_only(self):
        status, lines, _ = self.run_suite("--mode", "on", known=TEST)
        self.assertEqual(status, 0)
        self.assertEqual(lines, ["1 files, 0 skipped, 5 tests, 2 explained, 0 unsteady, 0 unexplained"])

    def test_compression_common_to_gzip_and_sszip_is_no_difference(self):
        status, lines, _ = self.run_suite("--mode", "gzip", coded=CODED)
        self.assertEqual((status, lines), (0, ["1 files, 0 skipped, 6 tests, 0 explained, 0 unsteady, 0 unexplained"]))

    def test_file_that_dies_is_reported_with_its_missing_tests(self):
        status, lines, _ = self.run_suite("--mode", "cache-gzip", coded=CODED)
        self.assertEqual(status, 1)
        self.assertEqual(lines[0], "coded.t, cache-gzip: lives: ok, now missing")

    def test_difference_that_does_not_recur_is_unsteady(self):
        once = (
            "my $seen = -e 'seen'; open my $f, '>', 'seen' if $ENV{TEST_NGINX_GLOBALS_HTTP} =~ /sszip/;\n"
            "print \"1..1\\n\", $ENV{TEST_NGINX_GLOBALS_HTTP} !~ /sszip/ || $seen ? '' : 'not ', \"ok 1 - once\\n\";\n"
        )
        status, lines, _ = self.run_suite("--mode", "on", once=once)
        self.assertEqual(status, 0)
        self.assertEqual(lines[0], "once.t, on: once: ok, now not ok (not so when it was run again)")

    def test_file_that_ends_before_its_first_test_is_run_again(self):
        flaky = (
            "print \"1..1\n\"; my $n = -s 'begun' || 0; open my $f, '>>', 'begun'; print $f '.';\n"
            "exit 98 if $n < 2; print \"ok 1 - begun\n\";\n"
        )
        status, lines, _ = self.run_suite("--mode", "on", flaky=flaky)
        self.assertEqual((status, lines), (0, ["1 files, 0 skipped, 1 tests, 0 explained, 0 unsteady, 0 unexplained"]))
        self.assertEqual((self.folder / "begun").stat().st_size, 4)

    def test_suite_fails_when_no_test_has_run(self):
        status, _, errors = self.run_suite("--mode", "on", none="print \"1..0 # SKIP no nginx\\n\";\n")
        self.assertEqual((status, errors), (1, "nothing has run\n"))

    def test_todo_test_may_pass_or_fail(self):
        todo = (
            "print \"1..1\\n\", $ENV{TEST_NGINX_GLOBALS_HTTP} =~ /sszip/ ? 'not ' : '', "
            "\"ok 1 - later # TODO not yet\\n\";\n"
        )
        status, lines, _ = self.run_suite("--mode", "on", todo=todo)
        self.assertEqual((status, len(lines)), (0, 1))

    def test_suite_fails_when_nginx_does_not_start(self):
        status, lines, errors = self.run_suite(nginx="/bin/false", seen=TEST)
        self.assertEqual((status, lines), (1, []))
        self.assertIn("/bin/false does not start with", errors)

    def test_folder_without_the_suite_is_an_error_with_its_address(self):
        (self.folder / "lib/Test/Nginx.pm").unlink()
        status, _, errors = self.run_suite()
        self.assertEqual(status, 2)
        self.assertIn("https://github.com/nginx/nginx-tests", errors)


EXPLAINED = """
[[explained]]
file = "known.t"
test = "off|"
modes = ["on"]
why = "It is on."
"""


if __name__ == "__main__":
    unittest.main()
