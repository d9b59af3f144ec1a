"""A cluster on one machine: network namespaces, rate-limited links, an sshd per host.

``spec`` is what was asked for, ``plan`` turns it into steps without touching anything, ``steps`` prints or
carries steps out, ``observe`` looks at what exists, ``up`` and ``down`` do it, ``links`` and ``enter`` act on
one host, ``state`` finds a lab again.
"""
