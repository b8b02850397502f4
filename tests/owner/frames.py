"""A client of the owner's frames: a second implementation of the chapter "Frames" of
docs/owner-protocol.md, which shares no code with the product."""

import contextlib
import itertools
import socket
import types

from daemon import NAMESPACE, key, monotonic
from harness.guards import GUARD_SECONDS

VERSION = 5
OLDER, PREFACE, NEWER = (b"SZL" + bytes([version]) for version in (VERSION - 1, VERSION, VERSION + 1))
PATH = f"/v{VERSION}/frames"
CHUNK = 256 << 10  # maximum length of a body
FRAME = 64 << 10  # length after which a sender adds no message

CLASSES = {"immutable": 0, "unfinalized": 1, "tip": 2, "config": 3, "resource": 5}
LEASES = ("none", "granted", "pending", "full")
PURGE_SCOPES = (("method or blocks", 0), ("key", 32), ("namespace", 16), ("everything", 0))  # and length of the value
REASONS = ("unknown session", "too many processes", "clock differs", "stopping")

# name and members of each message of the owner: u is a number, 32 and 16 are raw bytes
OWNER_MESSAGES = {
    0x41: ("welcome", {"session": "u", "generation": "u", "event": "u"}),
    0x42: ("refused", {"reason": "u"}),
    0x43: ("send_lease", {"until": "u", "after": "u", "generation": "u"}),
    0x44: ("filled", {"number": "u", "key": 32}),
    0x45: ("given_up", {"number": "u", "key": 32}),
    0x46: ("chain", {"number": "u", "namespace": 16}),
    0x47: ("purge", {"number": "u", "generation": "u", "scope": "scope"}),
    0x48: ("found", {"generation": "u", "fresh": "u", "age": "u", "total": "u"}),
    0x49: ("missing", {"generation": "u", "lease": "u"}),
    0x4A: ("batch_found", {"generation": "u", "key": 32, "fresh": "u", "age": "u", "total": "u"}),
    0x4B: ("batch_end", {"generation": "u"}),
    0x4C: ("admin_reply", {"status": "u", "total": "u"}),
    0x4D: ("chunk", {}),
    0x4E: ("late_reply", {"number": "u", "messages": "u"}),
    0x4F: ("batch_wait", {}),
}


def number(value):
    """postcard's integer: seven bits a byte, the lowest first."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def text(value):
    return number(len(value)) + value.encode()


def optional(value, encode=number):
    return b"\0" if value is None else b"\1" + encode(value)


def message(kind, head=b"", id=0, body=b""):
    lengths = len(head).to_bytes(3, "little") + id.to_bytes(4, "little") + len(body).to_bytes(4, "little")
    return bytes([kind]) + lengths + head + body


def frame(*messages, flags=0):
    content = len(messages).to_bytes(2, "little") + flags.to_bytes(2, "little") + b"".join(messages)
    return len(content).to_bytes(4, "little") + content


def frames(*messages):
    """As few frames as the limits permit."""
    out, current = [], []
    for one in messages:
        if current and (len(current) == 512 or sum(map(len, current)) >= FRAME):
            out.append(frame(*current))
            current = []
        current.append(one)
    return b"".join([*out, frame(*current)])


def hello(process, attempt=1, clock=None, polls=False):
    head = text(process) + number(attempt) + number(monotonic() if clock is None else clock) + bytes([polls])
    return message(0x01, head)


def lookup(id, n, lease=60_000, fleet_wait=0, call_kind=0):
    return message(0x02, bytes.fromhex(key(n)) + optional(lease) + number(fleet_wait) + number(call_kind), id)


def batch_lookup(id, numbers, fleet_wait=0, shareable=0, call_kind=0, lease_wait=0):
    """`call_kind`: the kind of each of the first `shareable` calls."""
    head = number(fleet_wait) + number(shareable) + number(lease_wait)
    keys = b"".join(bytes.fromhex(key(n)) for n in numbers)
    return message(0x03, head, id, keys + shareable * call_kind.to_bytes(4, "little"))


def store(n, body, generation, id=0, fresh=3_600_000, age=0, method=None, block=None, epoch=0, height=None, **more):
    """The messages that store an entry."""
    about = number(CLASSES[more.get("class", "immutable")]) + bytes.fromhex(more.get("namespace", NAMESPACE))
    about += optional(method, text) + optional(block) + number(generation) + number(epoch) + optional(height)
    # no upgrade, not shareable, no anchor
    head = bytes.fromhex(key(n)) + about + number(fresh) + number(age) + b"\0\0\0" + number(len(body))
    parts = [body[start : start + CHUNK] for start in range(0, max(len(body), 1), CHUNK)]
    return [message(0x04, head, id, parts[0]), *(message(0x0A, b"", id, part) for part in parts[1:])]


def release(n):
    return message(0x05, bytes.fromhex(key(n)))


def show_block(height, is_block=True, namespace=NAMESPACE):
    return message(0x06, bytes.fromhex(namespace) + number(height) + bytes([is_block]))


def applied(event, generation):
    return message(0x07, number(event) + number(generation))


def purge(id, scope):
    return message(0x08, b"", id, scope)


def status(id):
    return message(0x09, b"", id)


def goodbye():
    return message(0x0B)


def read_number(data):
    value = 0
    for shift in itertools.count(0, 7):
        byte = data.pop(0)
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value


def read_member(data, kind):
    if kind == "u":
        return read_number(data)
    if kind == "scope":
        name, length = PURGE_SCOPES[data.pop(0)]
        return name, read_member(data, length)
    value = bytes(data[:kind]).hex()
    del data[:kind]
    return value


def parse_frame(content):
    """The messages of a frame without its length field."""
    count, flags, at = int.from_bytes(content[:2], "little"), int.from_bytes(content[2:4], "little"), 4
    assert flags == 0 and 1 <= count <= 512
    for _ in range(count):
        kind, head_length = content[at], int.from_bytes(content[at + 1 : at + 4], "little")
        id, length = (int.from_bytes(content[at + start : at + start + 4], "little") for start in (4, 8))
        head = bytearray(content[at + 12 : at + 12 + head_length])
        at += 12 + head_length + length
        name, members = OWNER_MESSAGES[kind]
        values = {member: read_member(head, form) for member, form in members.items()}
        assert not head and length <= CHUNK and head_length <= 4096
        yield types.SimpleNamespace(name=name, id=id, body=content[at - length : at], **values)
    assert at == len(content)


class Connection:
    """A connection that begins with the preface, unless `first` has other bytes."""

    def __init__(self, daemon, first=PREFACE):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(GUARD_SECONDS)
        self.socket.connect(str(daemon.socket))
        with contextlib.suppress(BrokenPipeError):  # the owner has closed it early
            self.socket.sendall(first)
        self.buffer = b""
        self.received = []
        self.preface = None

    def read(self, length):
        while len(self.buffer) < length:
            more = self.socket.recv(1 << 20)
            if not more:
                raise EOFError("the owner has closed the connection")
            self.buffer += more
        part, self.buffer = self.buffer[:length], self.buffer[length:]
        return part

    def receive_frame(self):
        self.preface = self.preface or self.read(4)
        assert self.preface == PREFACE
        length = int.from_bytes(self.read(4), "little")
        assert length <= 320 << 10
        return list(parse_frame(self.read(length)))

    def next(self, *names, id=None):
        """Takes the first message with one of these names and this id; others wait."""
        while True:
            for at, one in enumerate(self.received):
                if one.name in names and id in (None, one.id):
                    return self.received.pop(at)
            self.received += self.receive_frame()

    def send(self, *messages):
        self.socket.sendall(frames(*messages))

    def ended(self):
        """Waits until the owner closes the connection."""
        with contextlib.suppress(EOFError, ConnectionResetError):
            while True:
                self.received += self.receive_frame()
        return True

    def close(self):
        self.socket.close()


class Session(Connection):
    """A process with a session."""

    attempts = itertools.count(1)

    def __init__(self, daemon, process):
        while True:
            super().__init__(daemon, PREFACE + frame(hello(process, next(self.attempts))))
            self.welcome = self.next("welcome", "refused")
            if self.welcome.name == "welcome":
                break
            # the owner refuses a message that is late on a busy machine
            assert REASONS[self.welcome.reason] == "clock differs"
            self.close()
        self.process = process
        self.lease = self.next("send_lease")
        self.ids = itertools.count(1)

    def reply(self, id):
        """The reply to a request, with its whole body."""
        reply = self.next("found", "missing", "admin_reply", "batch_found", "batch_end", id=id)
        while len(reply.body) < getattr(reply, "total", 0):
            reply.body += self.next("chunk", id=id).body
        return reply

    def lookup(self, n, lease=60_000, fleet_wait=0):
        id = next(self.ids)
        self.send(lookup(id, n, lease, fleet_wait))
        return self.reply(id)

    def request_lease(self, n, lease=60_000):
        reply = self.lookup(n, lease)
        return LEASES[reply.lease] if reply.name == "missing" else reply.name

    def store(self, n, body=b"body", **fields):
        self.send(*store(n, body, fields.pop("generation", self.welcome.generation), next(self.ids), **fields))

    def lookup_batch(self, numbers, **options):
        """The entries that were found, by key, and the end of the reply."""
        id, found = next(self.ids), {}
        self.send(batch_lookup(id, numbers, **options))
        while (reply := self.reply(id)).name != "batch_end":
            found[reply.key] = reply.body
        return found, reply

    def last_lease(self):
        """The last send lease that has arrived."""
        for one in [one for one in self.received if one.name == "send_lease"]:
            self.received.remove(one)
            self.lease = one
        return self.lease


def envelope(role, process, session=0, number=0, applied=0, wait=0):
    name = process.encode()
    numbers = session.to_bytes(8, "little") + number.to_bytes(4, "little")
    return bytes([role, len(name)]) + name + numbers + applied.to_bytes(8, "little") + wait.to_bytes(4, "little")


class PolledSession:
    """A process that sends its frames in callouts."""

    def __init__(self, daemon, process, *more):
        self.daemon = daemon
        self.process = process
        self.numbers = itertools.count(1)
        self.session = 0
        while True:
            self.first = self.data(hello(process, next(Session.attempts), polls=True), *more)
            if self.first[0].name == "welcome":
                break
            # as in Session
            assert REASONS[self.first[0].reason] == "clock differs"
        self.session = self.first[0].session
        self.generation = self.first[0].generation
        self.applied = max((one.number for one in self.first if hasattr(one, "number")), default=0)

    def call(self, role, messages=(), **fields):
        """The messages of the answer; `None` if it has no frame."""
        head = envelope(role, self.process, self.session, **fields)
        answer = self.daemon.request("POST", PATH, PREFACE + head + (frame(*messages) if messages else b""))
        assert answer.status == 200, answer.body
        assert answer.fields["content-type"] == "application/vnd.sszip.frames"
        assert answer.body[:4] == PREFACE
        if len(answer.body) == 4:
            return None
        assert int.from_bytes(answer.body[4:8], "little") == len(answer.body) - 8
        return list(parse_frame(answer.body[8:]))

    def data(self, *messages, **fields):
        """The answer to messages, whose number is one above the last."""
        fields = {"number": next(self.numbers), "applied": getattr(self, "applied", 0)} | fields
        return self.call(0, messages, **fields)

    def poll(self, wait=20_000, **fields):
        return self.call(1, **{"applied": self.applied, "wait": wait} | fields)
