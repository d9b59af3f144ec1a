#!/bin/sh
set -e

# writing keys and files
mkdir -p -m 700 /run/ringleader/lab/lab
install -m 600 /dev/stdin /run/ringleader/lab/lab/lab.json <<'END_OF_FILE'
{
  "format": 1,
  "spec": {
    "name": "lab",
    "hosts": 2,
    "slots": 2,
    "bandwidth": 8000000000,
    "latency": 0.0,
    "ssh_port": 33,
    "subnet": "10.213.0.0/24",
    "private_tmp": false,
    "tree": null,
    "kernel": ""
  }
}
END_OF_FILE
ssh-keygen -q -t ed25519 -N '' -C 'ringleader lab lab' -f /run/ringleader/lab/lab/id
cat /run/ringleader/lab/lab/id.pub >> /run/ringleader/lab/lab/authorized_keys
install -m 644 /dev/stdin /run/ringleader/lab/lab/hostfile <<'END_OF_FILE'
h1 slots=2
h2 slots=2
END_OF_FILE
install -m 644 /dev/stdin /run/ringleader/lab/lab/ssh_config <<'END_OF_FILE'
Host h1 10.213.0.1
    HostName 10.213.0.1

Host h2 10.213.0.2
    HostName 10.213.0.2

Host *
    Port 33
    IdentityFile "/run/ringleader/lab/lab/id"
    IdentitiesOnly yes
    IdentityAgent none
    UserKnownHostsFile "/run/ringleader/lab/lab/known_hosts"
    GlobalKnownHostsFile /dev/null
    StrictHostKeyChecking yes
    PasswordAuthentication no
    KbdInteractiveAuthentication no
    BatchMode yes
    CheckHostIP no
END_OF_FILE
mkdir -p -m 755 /run/ringleader/lab/lab/h1
mkdir -p -m 755 /run/ringleader/lab/lab/h1/run
mkdir -p -m 755 /run/ringleader/lab/lab/h1/sys
ssh-keygen -q -t ed25519 -N '' -C h1 -f /run/ringleader/lab/lab/h1/host_key
sed 's/^/[10.213.0.1]:33,[h1]:33,h1,10.213.0.1 /' /run/ringleader/lab/lab/h1/host_key.pub >> /run/ringleader/lab/lab/known_hosts
install -m 644 /dev/stdin /run/ringleader/lab/lab/h1/sshd_config <<'END_OF_FILE'
Port 33
ListenAddress 10.213.0.1
HostKey "/run/ringleader/lab/lab/h1/host_key"
AuthorizedKeysFile "/run/ringleader/lab/lab/authorized_keys"
PidFile none
UsePAM no
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
SetEnv "PATH=/opt/venv/bin:/usr/bin:/bin" "SHLVL=1" "RINGLEADER_LAB=lab" "TMPDIR=/var/tmp" "OMPI_MCA_mpi_yield_when_idle=1"
END_OF_FILE
install -m 644 /dev/stdin /run/ringleader/lab/lab/h1/hosts <<'END_OF_FILE'
127.0.0.1 localhost
::1 localhost ip6-localhost ip6-loopback
10.213.0.1 h1
10.213.0.2 h2
10.213.0.254 node7.example.org node7 lab-head
END_OF_FILE
install -m 644 /dev/stdin /run/ringleader/lab/lab/h1/boot.sh <<'END_OF_FILE'
set -e
echo h1 > /proc/sys/kernel/hostname
# Copies of other namespaces' mounts would keep those namespaces alive after their end.
if mountpoint -q /run/netns; then umount -n -l /run/netns; fi
mount -n -t tmpfs -o mode=1777 tmpfs /dev/shm
mount -n -t tmpfs -o mode=1777 tmpfs /var/tmp
mount -n -t sysfs -o ro sysfs /run/ringleader/lab/lab/h1/sys
if [ -d /sys/fs/cgroup ]; then mount -n --rbind /sys/fs/cgroup /run/ringleader/lab/lab/h1/sys/fs/cgroup; fi
mount -n --move /run/ringleader/lab/lab/h1/sys /sys
mount -n -t tmpfs -o mode=755 tmpfs /run/ringleader/lab/lab/h1/run
mkdir -p /run/ringleader/lab/lab/h1/run/sshd /run/ringleader/lab/lab/h1/run/lock /run/ringleader/lab/lab/h1/run/ringleader/lab/lab
mount -n --bind /run/ringleader/lab/lab /run/ringleader/lab/lab/h1/run/ringleader/lab/lab
# A mount on /etc/hosts itself would vanish as soon as anyone on the machine replaces that file by renaming.
mkdir -p /run/ringleader/lab/lab/h1/run/etc/upper /run/ringleader/lab/lab/h1/run/etc/work
cp /run/ringleader/lab/lab/h1/hosts /run/ringleader/lab/lab/h1/run/etc/upper/hosts
echo h1 > /run/ringleader/lab/lab/h1/run/etc/upper/hostname
mount -n -t overlay -o lowerdir=/etc,upperdir=/run/ringleader/lab/lab/h1/run/etc/upper,workdir=/run/ringleader/lab/lab/h1/run/etc/work overlay /etc ||
    mount -n --bind /run/ringleader/lab/lab/h1/hosts /etc/hosts
mount -n --move /run/ringleader/lab/lab/h1/run /run
cd /
# The next child is process 1 of the host: when it dies, the kernel kills everything on the host.
exec unshare --pid sh -c "setsid sh /run/ringleader/lab/lab/h1/first.sh >> /run/ringleader/lab/lab/h1/boot.log 2>&1 &"
END_OF_FILE
install -m 644 /dev/stdin /run/ringleader/lab/lab/h1/first.sh <<'END_OF_FILE'
set -e
mount -n -t proc proc /proc
last=/proc/sys/kernel/ns_last_pid
if [ -w $last ]; then
    echo $(($(cat /proc/sys/kernel/pid_max) / 3 * 1)) > $last
fi
exec /usr/sbin/sshd -D -f /run/ringleader/lab/lab/h1/sshd_config -E /run/ringleader/lab/lab/h1/sshd.log
END_OF_FILE
mkdir -p -m 755 /run/ringleader/lab/lab/h2
mkdir -p -m 755 /run/ringleader/lab/lab/h2/run
mkdir -p -m 755 /run/ringleader/lab/lab/h2/sys
ssh-keygen -q -t ed25519 -N '' -C h2 -f /run/ringleader/lab/lab/h2/host_key
sed 's/^/[10.213.0.2]:33,[h2]:33,h2,10.213.0.2 /' /run/ringleader/lab/lab/h2/host_key.pub >> /run/ringleader/lab/lab/known_hosts
install -m 644 /dev/stdin /run/ringleader/lab/lab/h2/sshd_config <<'END_OF_FILE'
Port 33
ListenAddress 10.213.0.2
HostKey "/run/ringleader/lab/lab/h2/host_key"
AuthorizedKeysFile "/run/ringleader/lab/lab/authorized_keys"
PidFile none
UsePAM no
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
SetEnv "PATH=/opt/venv/bin:/usr/bin:/bin" "SHLVL=1" "RINGLEADER_LAB=lab" "TMPDIR=/var/tmp" "OMPI_MCA_mpi_yield_when_idle=1"
END_OF_FILE
install -m 644 /dev/stdin /run/ringleader/lab/lab/h2/hosts <<'END_OF_FILE'
127.0.0.1 localhost
::1 localhost ip6-localhost ip6-loopback
10.213.0.1 h1
10.213.0.2 h2
10.213.0.254 node7.example.org node7 lab-head
END_OF_FILE
install -m 644 /dev/stdin /run/ringleader/lab/lab/h2/boot.sh <<'END_OF_FILE'
set -e
echo h2 > /proc/sys/kernel/hostname
# Copies of other namespaces' mounts would keep those namespaces alive after their end.
if mountpoint -q /run/netns; then umount -n -l /run/netns; fi
mount -n -t tmpfs -o mode=1777 tmpfs /dev/shm
mount -n -t tmpfs -o mode=1777 tmpfs /var/tmp
mount -n -t sysfs -o ro sysfs /run/ringleader/lab/lab/h2/sys
if [ -d /sys/fs/cgroup ]; then mount -n --rbind /sys/fs/cgroup /run/ringleader/lab/lab/h2/sys/fs/cgroup; fi
mount -n --move /run/ringleader/lab/lab/h2/sys /sys
mount -n -t tmpfs -o mode=755 tmpfs /run/ringleader/lab/lab/h2/run
mkdir -p /run/ringleader/lab/lab/h2/run/sshd /run/ringleader/lab/lab/h2/run/lock /run/ringleader/lab/lab/h2/run/ringleader/lab/lab
mount -n --bind /run/ringleader/lab/lab /run/ringleader/lab/lab/h2/run/ringleader/lab/lab
# A mount on /etc/hosts itself would vanish as soon as anyone on the machine replaces that file by renaming.
mkdir -p /run/ringleader/lab/lab/h2/run/etc/upper /run/ringleader/lab/lab/h2/run/etc/work
cp /run/ringleader/lab/lab/h2/hosts /run/ringleader/lab/lab/h2/run/etc/upper/hosts
echo h2 > /run/ringleader/lab/lab/h2/run/etc/upper/hostname
mount -n -t overlay -o lowerdir=/etc,upperdir=/run/ringleader/lab/lab/h2/run/etc/upper,workdir=/run/ringleader/lab/lab/h2/run/etc/work overlay /etc ||
    mount -n --bind /run/ringleader/lab/lab/h2/hosts /etc/hosts
mount -n --move /run/ringleader/lab/lab/h2/run /run
cd /
# The next child is process 1 of the host: when it dies, the kernel kills everything on the host.
exec unshare --pid sh -c "setsid sh /run/ringleader/lab/lab/h2/first.sh >> /run/ringleader/lab/lab/h2/boot.log 2>&1 &"
END_OF_FILE
install -m 644 /dev/stdin /run/ringleader/lab/lab/h2/first.sh <<'END_OF_FILE'
set -e
mount -n -t proc proc /proc
last=/proc/sys/kernel/ns_last_pid
if [ -w $last ]; then
    echo $(($(cat /proc/sys/kernel/pid_max) / 3 * 2)) > $last
fi
exec /usr/sbin/sshd -D -f /run/ringleader/lab/lab/h2/sshd_config -E /run/ringleader/lab/lab/h2/sshd.log
END_OF_FILE

# making namespaces and links
ip link add rl-lab mtu 9000 type bridge
ip addr add 10.213.0.254/24 dev rl-lab
ip link set rl-lab addrgenmode none up
ip netns add rl-lab-h1
ip link add rl-lab-1 mtu 9000 type veth peer name eth0 mtu 9000 netns rl-lab-h1
ip link set rl-lab-1 master rl-lab addrgenmode none up
ip -n rl-lab-h1 link set lo up
ip -n rl-lab-h1 addr add 10.213.0.1/24 dev eth0
ip -n rl-lab-h1 link set eth0 addrgenmode none up
ip netns add rl-lab-h2
ip link add rl-lab-2 mtu 9000 type veth peer name eth0 mtu 9000 netns rl-lab-h2
ip link set rl-lab-2 master rl-lab addrgenmode none up
ip -n rl-lab-h2 link set lo up
ip -n rl-lab-h2 addr add 10.213.0.2/24 dev eth0
ip -n rl-lab-h2 link set eth0 addrgenmode none up
tc qdisc replace dev rl-lab-1 root handle 1: tbf rate 8000000000bit burst 2000000 limit 16000000
tc -n rl-lab-h1 qdisc replace dev eth0 root handle 1: tbf rate 8000000000bit burst 2000000 limit 16000000
tc qdisc replace dev rl-lab-2 root handle 1: tbf rate 8000000000bit burst 2000000 limit 16000000
tc -n rl-lab-h2 qdisc replace dev eth0 root handle 1: tbf rate 8000000000bit burst 2000000 limit 16000000
cat >> /etc/hosts <<'END_OF_BLOCK'
# ringleader lab lab: begin
10.213.0.1 h1
10.213.0.2 h2
10.213.0.254 node7 lab-head
# ringleader lab lab: end
END_OF_BLOCK

# starting hosts
nsenter --net=/run/netns/rl-lab-h1 unshare --mount --uts --ipc sh /run/ringleader/lab/lab/h1/boot.sh
nsenter --net=/run/netns/rl-lab-h2 unshare --mount --uts --ipc sh /run/ringleader/lab/lab/h2/boot.sh
