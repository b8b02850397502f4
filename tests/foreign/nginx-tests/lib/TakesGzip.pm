package TakesGzip;

# A client of nginx-tests that takes gzip in every request, and decodes.

# Loaded before the tests (perl -MTakesGzip), with Test::Nginx within reach: it
# replaces two of its functions before anyone imports them. A request that has
# an Accept-Encoding of its own stays as it is, and so does its answer.

use warnings;
use strict;

use Compress::Raw::Zlib qw/ WANT_GZIP Z_OK Z_STREAM_END /;
use Test::Nginx;

my %asked;

my $start = \&Test::Nginx::http_start;
my $end = \&Test::Nginx::http_end;

# Behind a prototype as theirs is.
sub http_start($;%) {
	my ($request, %extra) = @_;

	my $ask = $request =~ m!\A[A-Z]+ \S+ HTTP/1\.[01]\r?\n!
		&& $request !~ /^Accept-Encoding:/mi;
	$request =~ s!\A([^\n]*?)(\r?\n)!$1$2Accept-Encoding: gzip$2! if $ask;

	my $s = $start->($request, %extra);
	if (ref $s) {
		# an old socket may have had the same name
		$asked{$s} = $ask;
	}
	return $s;
}

sub http_end($;%) {
	my ($s, %extra) = @_;

	my $ask = ref $s ? delete $asked{$s} : undef;
	my $reply = $end->($s, %extra);
	return $ask ? decoded($reply) : $reply;
}

# The reply as if it had never been coded; what can't be decoded stays, and so
# do those behind it: of pipelined requests only the first one asks for gzip.
sub decoded {
	my ($reply) = @_;

	return $reply unless defined $reply
		&& $reply =~ /\A(.*?\r?\n)(\r?\n)(.+)\z/s;
	my ($head, $blank, $body) = ($1, $2, $3);
	return $reply unless $head =~ s/^Content-Encoding: gzip\r?\n//mi;

	my $chunked = $head =~ /^Transfer-Encoding: chunked/mi;
	my ($whole, $rest) = (1, '');
	if ($chunked) {
		($body, $whole, $rest) = unchunked($body);
	} elsif ($head =~ /^Content-Length: (\d+)/mi && $1 < length $body) {
		$rest = substr($body, $1, length $body, '');
	}

	my $plain = '';
	while (length $body) {
		my $inflate = Compress::Raw::Zlib::Inflate->new(
			-WindowBits => WANT_GZIP);
		my $status = $inflate->inflate($body, my $out);
		return $reply unless $status == Z_OK || $status == Z_STREAM_END;
		$plain .= $out;
		last if $status == Z_OK;
	}

	if ($chunked) {
		$plain = sprintf("%x\r\n%s\r\n", length $plain, $plain)
			if length $plain;
		$plain .= "0\r\n\r\n" if $whole;
	} else {
		my $length = length $plain;
		$head =~ s/^Content-Length: \d+/Content-Length: $length/mi;
	}

	return $head . $blank . $plain . $rest;
}

# What is in the chunks, whether the last one is there, and what is behind it.
sub unchunked {
	my ($body) = @_;
	my $content = '';

	while ($body =~ /\G\r?\n?([0-9a-f]+)\r?\n/gci) {
		if (hex($1) == 0) {
			$body =~ /\G\r?\n/gc;
			return ($content, 1, substr($body, pos($body)));
		}
		my $from = pos($body);
		$content .= substr($body, $from, hex($1));
		last if $from + hex($1) > length $body;
		pos($body) = $from + hex($1);
	}

	return ($content, 0, '');
}

{
	no warnings 'redefine';
	*Test::Nginx::http_start = \&http_start;
	*Test::Nginx::http_end = \&http_end;
}

1;
