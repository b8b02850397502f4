"""Classes of the SSZ library that the specifications' Python package uses, and their parameters.

Only this module and faster.py depend on the library: a package with another one changes them, and
no test (docs/forks.md lists the names).
"""

from eth_consensus_specs.utils.ssz.ssz_typing import (
    BitList,
    BitVector,
    Boolean,
    Byte,
    ByteList,
    ByteVector,
    CompatibleUnion,
    Container,
    List,
    ProgressiveBitList,
    ProgressiveContainer,
    ProgressiveList,
    Uint,
    Uint8,
    Uint64,
    Vector,
)

__all__ = [
    "BitList",
    "BitVector",
    "Boolean",
    "ByteList",
    "ByteVector",
    "CompatibleUnion",
    "Container",
    "List",
    "ProgressiveBitList",
    "ProgressiveContainer",
    "ProgressiveList",
    "Uint",
    "Uint8",
    "Uint64",
    "Vector",
]


def is_container(value):
    """Whether a value is a class of containers with fields."""
    return (
        isinstance(value, type)
        and issubclass(value, Container)
        and value not in (Container, ProgressiveContainer)
    )


def container(name, base=Container, /, **fields):
    """A new class of containers; `base` may be a `progressive(active)`."""
    return type(name, (base,), {"__annotations__": fields})


def progressive(active):
    """The base of a progressive container with these active fields."""
    return ProgressiveContainer(active_fields=[int(is_active) for is_active in active])


def changed_container(ty, fields):
    """The class of containers with other fields, which are as many."""
    return type(ty.__name__, ty.__bases__, {"__annotations__": fields})


def fields(ty):
    """Types of a container's fields by their names."""
    return ty.fields()


def active_fields(ty):
    """The active fields of a progressive container; `None` for other types."""
    if not issubclass(ty, ProgressiveContainer):
        return None
    return [bool(bit) for bit in ty._active_fields]


def element(ty):
    """The type of a list's or a vector's elements."""
    return ty.element_cls()


def has_elements(ty):
    """Whether a type is a list or a vector of other types."""
    return hasattr(ty, "element_cls")


def length(ty):
    """The length of a vector, or of a bit vector."""
    return ty.vector_length()


def limit(ty):
    """The limit of a list, or of a bit list."""
    return ty.limit()


def byte_length(ty):
    """The length of an integer, or of a byte vector."""
    return ty.type_byte_length()


def options(ty):
    """Types of a union by their selectors."""
    return ty.options()


def is_bytes(ty):
    """Whether a type is a progressive list of `byte`s, and not of small numbers."""
    return issubclass(ty, ProgressiveList) and element(ty) is Byte
