"""Components, their interfaces and their remotes; private, see :mod:`heliograph`.

It knows buses, topics and the protocol core of the extension; it must not know any transport.
"""
