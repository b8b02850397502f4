"""System calls that a systemd unit allows, enforced for a program."""

import ctypes
import os
import re
import struct
import subprocess

_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _FILTER = 38, 22, 2
_KILL, _ALLOW = 0x80000000, 0x7FFF0000
# BPF: load the call's number; skip an instruction if it is another one; end
_LOAD, _OTHER, _END = 0x20, 0x15, 0x06


def syscalls_of_set(name):
    """The calls of a set, and of the sets in it."""
    output = subprocess.run(["systemd-analyze", "--no-pager", "syscall-filter", name], capture_output=True, text=True, check=True).stdout
    words = [line.strip() for line in output.splitlines()[1:] if line.strip() and not line.strip().startswith("#")]
    return {call for word in words for call in (syscalls_of_set(word) if word.startswith("@") else [word])}


def allowed(unit):
    """The calls that `SystemCallFilter=` of a unit allows."""
    calls = syscalls_of_set("@default")
    for words in re.findall(r"^SystemCallFilter=(.+)$", unit, flags=re.M):
        taken, without = (words[1:], True) if words[0] == "~" else (words, False)
        for word in taken.split():
            named = syscalls_of_set(word) if word.startswith("@") else {word}
            calls = calls - named if without else calls | named
    # systemd adds the calls that are always needed in either case
    return calls | syscalls_of_set("@default")


def numbers(names):
    """The numbers of calls that this machine has, by the compiler's headers."""
    lines = "#include <sys/syscall.h>\n" + "".join(f"@{name} SYS_{name}\n" for name in sorted(names))
    output = subprocess.run(["gcc", "-E", "-P", "-"], input=lines, capture_output=True, text=True, check=True).stdout
    return [int(number) for number in re.findall(r"^@\s*\w+\s+(\d+)$", output, flags=re.M)]


class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_char_p)]


def restrict_to(calls):
    """A function for `preexec_fn`: any other call ends the process (SIGSYS)."""
    steps = [struct.pack("HBBI", _LOAD, 0, 0, 0)]
    for number in calls:
        steps += [struct.pack("HBBI", _OTHER, 0, 1, number), struct.pack("HBBI", _END, 0, 0, _ALLOW)]
    code = b"".join([*steps, struct.pack("HBBI", _END, 0, 0, _KILL)])
    program = Program(len(code) // 8, code)
    libc = ctypes.CDLL(None, use_errno=True)

    def put():
        if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(_PR_SET_SECCOMP, _FILTER, ctypes.byref(program), 0, 0):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    return put
