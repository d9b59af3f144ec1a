"""A cluster on one machine: network namespaces, rate-limited links, an sshd per host.

``spec`` is what was asked for. ``setup_plan``, ``removal_plan`` and ``virtual_network`` turn it into steps
without touching anything; ``steps`` prints or carries steps out. ``emulated_machine`` and ``initramfs`` are
for hosts with Soft-RoCE. ``kernel_state`` looks at what exists,
``saved_state`` finds a lab again. ``up``, ``down``, ``fault_injection``, ``host_shell`` and ``host_status``
are the commands.
"""
