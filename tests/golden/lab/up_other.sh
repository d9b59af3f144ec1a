#!/bin/sh
set -e

# writing keys and files
mkdir -p -m 700 /run/ringleader/lab/two
install -m 600 /dev/stdin /run/ringleader/lab/two/lab.json <<'END_OF_FILE'
{
  "format": 1,
  "spec": {
    "name": "two",
    "hosts": 1,
    "slots": 1,
    "bandwidth": 1000000000,
    "latency": 0.0002,
    "ssh_port": 2222,
    "subnet": "10.214.0.0/29",
    "private_tmp": true,
    "tree": null,
    "kernel": ""
  }
}
END_OF_FILE
ssh-keygen -q -t ed25519 -N '' -C 'ringleader lab two' -f /run/ringleader/lab/two/id
cat /run/ringleader/lab/two/id.pub >> /run/ringleader/lab/two/authorized_keys
install -m 644 /dev/stdin /run/ringleader/lab/two/hostfile <<'END_OF_FILE'
two-h1 slots=1
END_OF_FILE
install -m 644 /dev/stdin /run/ringleader/lab/two/ssh_config <<'END_OF_FILE'
Host two-h1 10.214.0.1
    HostName 10.214.0.1

Host *
    Port 2222
    IdentityFile "/run/ringleader/lab/two/id"
    IdentitiesOnly yes
    IdentityAgent none
    UserKnownHostsFile "/run/ringleader/lab/two/known_hosts"
    GlobalKnownHostsFile /dev/null
    StrictHostKeyChecking yes
    PasswordAuthentication no
    KbdInteractiveAuthentication no
    BatchMode yes
    CheckHostIP no
END_OF_FILE
mkdir -p -m 755 /run/ringleader/lab/two/h1
mkdir -p -m 755 /run/ringleader/lab/two/h1/run
mkdir -p -m 755 /run/ringleader/lab/two/h1/sys
ssh-keygen -q -t ed25519 -N '' -C two-h1 -f /run/ringleader/lab/two/h1/host_key
sed 's/^/[10.214.0.1]:2222,[two-h1]:2222,two-h1,10.214.0.1 /' /run/ringleader/lab/two/h1/host_key.pub >> /run/ringleader/lab/two/known_hosts
install -m 644 /dev/stdin /run/ringleader/lab/two/h1/sshd_config <<'END_OF_FILE'
Port 2222
ListenAddress 10.214.0.1
HostKey "/run/ringleader/lab/two/h1/host_key"
AuthorizedKeysFile "/run/ringleader/lab/two/authorized_keys"
PidFile none
UsePAM yes
StrictModes no
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UseDNS no
PrintMotd no
PrintLastLog no
MaxStartups 200:30:400
MaxSessions 200
Subsystem sftp internal-sftp
SetEnv "PATH=/opt/venv/bin:/usr/bin:/bin" "SHLVL=1" "RINGLEADER_LAB=two"
END_OF_FILE
install -m 644 /dev/stdin /run/ringleader/lab/two/h1/hosts <<'END_OF_FILE'
127.0.0.1 localhost
::1 localhost ip6-localhost ip6-loopback
10.214.0.1 two-h1
10.214.0.6 node7.example.org node7 two-head
END_OF_FILE
install -m 644 /dev/stdin /run/ringleader/lab/two/h1/boot.sh <<'END_OF_FILE'
set -e
echo two-h1 > /proc/sys/kernel/hostname
# Copies of other namespaces' mounts would keep those namespaces alive after their end.
if mountpoint -q /run/netns; then umount -n -l /run/netns; fi
mount -n -t tmpfs -o mode=1777 tmpfs /dev/shm
mount -n -t tmpfs -o mode=1777 tmpfs /var/tmp
mount -n -t tmpfs -o mode=1777 tmpfs /tmp
mount -n -t sysfs -o ro sysfs /run/ringleader/lab/two/h1/sys
if [ -d /sys/fs/cgroup ]; then mount -n --rbind /sys/fs/cgroup /run/ringleader/lab/two/h1/sys/fs/cgroup; fi
mount -n --move /run/ringleader/lab/two/h1/sys /sys
mount -n -t tmpfs -o mode=755 tmpfs /run/ringleader/lab/two/h1/run
mkdir -p /run/ringleader/lab/two/h1/run/sshd /run/ringleader/lab/two/h1/run/lock /run/ringleader/lab/two/h1/run/ringleader/lab/two
mount -n --bind /run/ringleader/lab/two /run/ringleader/lab/two/h1/run/ringleader/lab/two
# A mount on /etc/hosts itself would vanish as soon as anyone on the machine replaces that file by renaming.
mkdir -p /run/ringleader/lab/two/h1/run/etc/upper /run/ringleader/lab/two/h1/run/etc/work
cp /run/ringleader/lab/two/h1/hosts /run/ringleader/lab/two/h1/run/etc/upper/hosts
echo two-h1 > /run/ringleader/lab/two/h1/run/etc/upper/hostname
mount -n -t overlay -o lowerdir=/etc,upperdir=/run/ringleader/lab/two/h1/run/etc/upper,workdir=/run/ringleader/lab/two/h1/run/etc/work overlay /etc ||
    mount -n --bind /run/ringleader/lab/two/h1/hosts /etc/hosts
mount -n --move /run/ringleader/lab/two/h1/run /run
cd /
# The next child is process 1 of the host: when it dies, the kernel kills everything on the host.
exec unshare --pid sh -c "setsid sh /run/ringleader/lab/two/h1/first.sh >> /run/ringleader/lab/two/h1/boot.log 2>&1 &"
END_OF_FILE
install -m 644 /dev/stdin /run/ringleader/lab/two/h1/first.sh <<'END_OF_FILE'
set -e
mount -n -t proc proc /proc
last=/proc/sys/kernel/ns_last_pid
if [ -w $last ]; then
    echo $(($(cat /proc/sys/kernel/pid_max) / 2 * 1)) > $last
fi
exec /usr/sbin/sshd -D -f /run/ringleader/lab/two/h1/sshd_config -E /run/ringleader/lab/two/h1/sshd.log
END_OF_FILE

# making namespaces and links
ip link add rl-two mtu 9000 type bridge
ip addr add 10.214.0.6/29 dev rl-two
ip link set rl-two addrgenmode none up
ip netns add rl-two-h1
ip link add rl-two-1 mtu 9000 type veth peer name eth0 mtu 9000 netns rl-two-h1
ip link set rl-two-1 master rl-two addrgenmode none up
ip -n rl-two-h1 link set lo up
ip -n rl-two-h1 addr add 10.214.0.1/29 dev eth0
ip -n rl-two-h1 link set eth0 addrgenmode none up
tc qdisc replace dev rl-two-1 root handle 1: tbf rate 1000000000bit burst 250000 limit 2000000
tc qdisc replace dev rl-two-1 parent 1:1 handle 10: netem delay 200us limit 1000
tc -n rl-two-h1 qdisc replace dev eth0 root handle 1: tbf rate 1000000000bit burst 250000 limit 2000000
tc -n rl-two-h1 qdisc replace dev eth0 parent 1:1 handle 10: netem delay 200us limit 1000
cat >> /etc/hosts <<'END_OF_BLOCK'
# ringleader lab two: begin
10.214.0.1 two-h1
10.214.0.6 two-head
# ringleader lab two: end
END_OF_BLOCK

# starting hosts
nsenter --net=/run/netns/rl-two-h1 unshare --mount --uts --ipc sh /run/ringleader/lab/two/h1/boot.sh
