"""Messages of d-engine, written from the tables of field numbers alone: no generated code, so that what the server calls a field is compared
with what the tables do. A message is bytes; its fields are (number, value), where a value is an int or bytes."""


def varint(number):
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def message(*fields):
    """Of (number, value); None leaves a field out, an int is a varint, bytes and text are length-delimited."""
    out = bytearray()
    for number, value in fields:
        if value is None:
            continue
        if isinstance(value, str):
            value = value.encode()
        if isinstance(value, bytes):
            out += varint(number << 3 | 2) + varint(len(value)) + value
        else:
            out += varint(number << 3) + varint(int(value))
    return bytes(out)


def fields(data):
    """The fields of a message, in their order."""
    found, at = [], 0

    def number():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    while at < len(data):
        tag = number()
        if tag & 7 == 0:
            found.append((tag >> 3, number()))
        elif tag & 7 == 2:
            length = number()
            assert at + length <= len(data), "a field is longer than its message"
            found.append((tag >> 3, bytes(data[at : at + length])))
            at += length
        else:
            raise ValueError(f"field {tag >> 3} has wire type {tag & 7}, which no table has")
    return found


def every(data, number):
    return [value for found, value in fields(data) if found == number]


def first(data, number, default=None):
    found = every(data, number)
    return found[0] if found else default
