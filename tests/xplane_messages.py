"""XPlane messages, written field by field."""


def varint(number):
    number &= (1 << 64) - 1
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def message(*parts):
    """Fields of a message: pairs of number and int, text or bytes."""
    out = b""
    for number, value in parts:
        if isinstance(value, int):
            out += varint(number << 3) + varint(value)
        else:
            raw = value.encode() if isinstance(value, str) else value
            out += varint(number << 3 | 2) + varint(len(raw)) + raw
    return out


def meta(number, key, name):
    return (number, message((1, key), (2, message((1, key), (2, name)))))


def event(name, offset_ps, duration_ps, *stats):
    return (4, message((1, name), (2, offset_ps), (3, duration_ps), *((4, s) for s in stats)))
