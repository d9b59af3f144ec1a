"""A cluster on one machine: network namespaces, rate-limited links, an sshd per host.

``spec`` and ``rootfs`` are what was asked for. ``plan``, ``network`` and ``host_files`` turn it into
``steps``, which are printed or carried out. ``kernel_state`` looks at what exists, ``saved_state`` finds a
lab again. ``lifecycle`` makes and removes a lab; ``hosts`` is about those of one that is up. ``initramfs``
packs what hosts with Soft-RoCE boot from.
"""
