"""Each rule of nginx-style finds its own mistake, and nothing in good code."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

CHECKER = Path(__file__).parent.parent / "nginx-style"

GOOD = r"""
/*
 * Copyright (C) the authors
 */


#include <ngx_config.h>
#include <ngx_core.h>


#define ngx_sample_next(p)                                                   \
    do { (p)++; } while (0)


typedef struct {
    ngx_str_t     name;
    ngx_uint_t    count;
} ngx_sample_t;


static ngx_int_t ngx_sample_run(ngx_sample_t *sample, u_char *last,
    void *data);


static ngx_str_t  ngx_sample_names[] = {
    ngx_string("one, two"),
    ngx_null_string
};


static ngx_int_t
ngx_sample_run(ngx_sample_t *sample, u_char *last, void *data)
{
    ngx_sample_t *next = data;

    size_t       len, size;
    u_char      *p;
    ngx_uint_t   i;

    enum {
        sw_start = 0,
        sw_end
    } state;

    state = sw_start;    /* no "//" here */
    len = sample->name.len;

    for (p = sample->name.data; p < last; p++) {
        ngx_uint_t  n;

        n = *p * len;

        if (n == 0 && p != last) {
            continue;
        }

        size = n;
    }

    for (i = 0; i < 4; i++) { /* void */ }

    while (*p == ' ') { p++; }

    if (next == NULL
        && sample->count > sizeof(void *)
        && state == sw_start)
    {
        goto failed;

    } else if (!sample->count) {
        return NGX_DECLINED;

    } else {
        *p++ = CR; *p++ = LF;
    }

    switch (*p) {

    case ':':
        size = 1;
        break;

    default:
        do {
            size--;
        } while (size);
    }

#if (NGX_DEBUG)
    {
    ngx_int_t  rc;

    rc = ngx_sample_check(&ngx_sample_names[0]);

    if (rc != NGX_OK) {
        return rc;
    }
    }
#endif

    return NGX_OK;

failed:

    return NGX_ERROR;
}


static void
ngx_sample_log(void)
{
}
"""

HEADER = """
/*
 * Copyright (C) the authors
 */


#ifndef _SAMPLE_H_INCLUDED_
#define _SAMPLE_H_INCLUDED_


ngx_int_t ngx_sample(void);


#endif /* _SAMPLE_H_INCLUDED_ */
"""

# Rule, what is replaced in the good file, what by.
MISTAKES = [
    ("line-length", "state = sw_start;    /*", "state = sw_start;" + " " * 50 + "/*"),
    ("tab", "sw_start;    /*", "sw_start;\t/*"),
    ("trailing-blank", "    return NGX_OK;\n", "    return NGX_OK; \n"),
    ("copyright", "Copyright (C)", "Written by"),
    ("final-newline", "(void)\n{\n}\n", "(void)\n{\n}"),
    ("final-newline", "(void)\n{\n}\n", "(void)\n{\n}\n\n"),
    ("blank-lines", "}\n\n\nstatic void", "}\n\nstatic void"),
    ("blank-lines", "}\n\n\nstatic void", "}\n\n\n\nstatic void"),
    ("line-comment", '/* no "//" here */', "// here"),
    ("comment", '/* no "//" here */', '/*no "//" here*/'),
    ("comment", "/*\n * Copyright (C) the authors\n */", "/* Copyright (C) the\n   authors */"),
    ("keyword-space", "if (next", "if(next"),
    ("keyword-space", "return NGX_OK;", "return(NGX_OK);"),
    ("keyword-space", "sizeof(void *)", "sizeof (void *)"),
    ("brace-space", "p != last) {", "p != last){"),
    ("comma-space", "*sample, u_char *last, void *data)\n", "*sample,u_char *last, void *data)\n"),
    ("pointer", "sizeof(void *)", "sizeof(void*)"),
    ("pointer", "*sample, u_char *last, void *data)\n", "*sample, u_char* last, void *data)\n"),
    ("pointer", "u_char      *p;", "u_char      * p;"),
    ("own-word", "n = *p * len;", "n = strlen(p);"),
    ("control-body", " {\n            continue;\n        }", "\n            continue;"),
    ("control-body", " {\n            continue;\n        }", " continue;"),
    ("control-body", "{ p++; }", "p++;"),
    ("control-body", "} else {\n        *p++ = CR; *p++ = LF;\n    }", "} else\n        *p++ = CR;"),
    ("control-brace", "p != last) {", "p != last)\n        {"),
    ("control-brace", "sw_start)\n    {", "sw_start) {"),
    ("control-brace", "\n    } else {", "\n    }\n    else {"),
    ("function-type", "static void\nngx_sample_log", "static void ngx_sample_log"),
    ("function-type", "static void\nngx_sample_log(void)", "static\nvoid ngx_sample_log(void)"),
    ("function-brace", "ngx_sample_log(void)\n{", "ngx_sample_log(void) {"),
    ("declaration-align", "u_char      *p;", "u_char     *p;"),
    ("declaration-align", "        ngx_uint_t  n;", "        ngx_uint_t n;"),
    ("declaration-blank", "        ngx_uint_t  n;\n\n", "        ngx_uint_t  n;\n"),
    ("declaration-blank", "    } state;\n\n", "    } state;\n"),
    ("declaration-top", "        size = n;\n", "        size = n;\n        off_t  at;\n"),
    ("declaration-top", "for (i = 0; i < 4", "for (int i = 0; i < 4"),
    ("null-check", "next == NULL\n", "!next\n"),
    ("null-check", "p != last)", "!p)"),
    ("indent", "        size = n;", "      size = n;"),
    ("indent", "failed:", "    failed:"),
    ("indent", "    case ':'", "        case ':'"),
    ("one-statement", "size = 1;\n        break;", "size = 1; break;"),
]

HEADER_MISTAKES = [
    ("header-guard", "#ifndef _SAMPLE_H_", "#ifndef SAMPLE_H_"),
    ("header-guard", "#endif /* _SAMPLE_H_INCLUDED_ */", "#endif"),
]


def check(name, text):
    """Exit status and the set of rules reported for one file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_text(text)
        run = subprocess.run(
            [sys.executable, CHECKER, folder], capture_output=True, text=True, check=False
        )
    if run.stderr:
        raise AssertionError(run.stderr)
    return run.returncode, {line.split(": ")[1] for line in run.stdout.splitlines()}


class Rules(unittest.TestCase):
    def test_correct_files_have_no_findings(self):
        self.assertEqual(check("sample.c", GOOD), (0, set()))
        self.assertEqual(check("sample.h", HEADER), (0, set()))

    def test_mistakes_are_found(self):
        for name, good, mistakes in (
            ("sample.c", GOOD, MISTAKES),
            ("sample.h", HEADER, HEADER_MISTAKES),
        ):
            for rule, old, new in mistakes:
                with self.subTest(rule=rule, new=new):
                    self.assertEqual(good.count(old), 1, "the sample has it once")
                    self.assertEqual(check(name, good.replace(old, new)), (1, {rule}))

    def test_samples_have_a_mistake_for_each_rule(self):
        import re

        rules = set(re.findall(r'report\([^"]*"([a-z-]+)",', CHECKER.read_text()))
        self.assertEqual(rules, {rule for rule, _, _ in MISTAKES + HEADER_MISTAKES})

    def test_folder_without_a_source_is_an_error(self):
        with tempfile.TemporaryDirectory() as folder:
            run = subprocess.run([sys.executable, CHECKER, folder], capture_output=True, check=False)
        self.assertEqual(run.returncode, 1)


if __name__ == "__main__":
    unittest.main()
