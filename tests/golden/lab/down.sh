#!/bin/sh
set -e

# removing lab lab
rest=$(sed '/^# ringleader lab lab: begin/,/^# ringleader lab lab: end$/d' /etc/hosts) && printf '%s\n' "$rest" > /etc/hosts
kill -KILL 4711 4712 || true
ip link del rl-lab-1
ip link del rl-lab-2
ip link del rl-lab
ip netns del rl-lab-h1
ip netns del rl-lab-h2
rm -rf /run/ringleader/lab/lab
umount -n /run/netns
rmdir /run/netns
