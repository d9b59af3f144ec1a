"""The self-test of an image: what is in it, does it fit together, do two ranks start over its sshd."""
